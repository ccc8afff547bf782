"""Offers schemas for messages that are Avro records. Needs `pip install 'penstock[avro]'`.

Those of the Confluent Schema Registry have the names that Flink has for them in Java; PyFlink has none.
"""

from penstock.connectors.formats.avro.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.connectors.formats.avro.registry_rows import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
]
