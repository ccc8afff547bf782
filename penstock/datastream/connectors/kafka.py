"""Reads from Kafka and writes to it, with PyFlink's names. Needs `pip install 'penstock[kafka]'`."""

from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.kafka.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.older_names import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from penstock.connectors.kafka.record_serializer import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)

__all__ = [
    "DeliveryGuarantee", "KafkaSink", "KafkaSinkBuilder", "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder", "KafkaTopicSelector", "KafkaSource", "KafkaSourceBuilder",
    "KafkaOffsetsInitializer", "KafkaOffsetResetStrategy", "KafkaTopicPartition", "FlinkKafkaConsumer",
    "FlinkKafkaProducer", "Semantic",
]  # fmt: skip
