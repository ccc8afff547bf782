"""Offers PyFlink's schemas for messages that are Avro records. Needs `pip install 'penstock[avro]'`."""

from penstock.datastream.connectors.messages.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]
