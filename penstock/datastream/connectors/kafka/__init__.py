"""Reads from Kafka and writes to it, with PyFlink's names. Needs `pip install 'penstock[kafka]'`."""

from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.datastream.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from penstock.datastream.connectors.kafka.older_names import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from penstock.datastream.connectors.kafka.record_serializer import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)

__all__ = [
    "DeliveryGuarantee",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaOffsetsInitializer",
    "KafkaOffsetResetStrategy",
    "KafkaTopicPartition",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "Semantic",
]
