"""Reads from Kafka and writes to it, with PyFlink's names. Needs `pip install 'penstock[kafka]'`."""

from penstock.datastream.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)

__all__ = [
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaOffsetsInitializer",
    "KafkaOffsetResetStrategy",
    "KafkaTopicPartition",
]
