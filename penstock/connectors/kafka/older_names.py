"""Offers the older names that PyFlink still has for its Kafka source and sink, for `add_source` and `add_sink`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import Enum
from typing import NoReturn

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.files.malformed_rows import MalformedRows
from penstock.connectors.kafka.client import client_properties
from penstock.connectors.kafka.discovery import Subscription
from penstock.connectors.kafka.kafka_sink import KafkaSink
from penstock.connectors.kafka.kafka_source import COMMIT_OFFSETS, KafkaSource
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.record_serializer import KafkaRecordSerializationSchema


class FlinkKafkaConsumer(KafkaSource):
    """Reads topics of Kafka: an older name of `KafkaSource`, which new programs take.

    It begins at the offsets of the group; a partition without one begins as `auto.offset.reset` says (latest).

    Args:
        topics: A topic, or several.
        deserialization_schema: How values become rows.
        properties: Those of the consumer, `bootstrap.servers` among them.
    """

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        warnings.warn(
            "FlinkKafkaConsumer is an older name: use KafkaSource.builder() and env.from_source(...)",
            DeprecationWarning,
            stacklevel=2,
        )
        if "bootstrap.servers" not in properties:
            raise ValueError("a FlinkKafkaConsumer needs the property 'bootstrap.servers'")
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise TypeError(f"a deserializer is a DeserializationSchema, got {deserialization_schema!r}")
        client_properties(properties)
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        super().__init__(
            properties, Subscription(topics=names), deserialization_schema, KafkaOffsetsInitializer.latest(), None,
            False, MalformedRows.fail(),
        )  # fmt: skip
        if "group.id" in properties:
            self.set_start_from_group_offsets()

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Begin at the first record of each partition."""
        self._start = KafkaOffsetsInitializer.earliest()
        return self

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Begin behind the last record of each partition."""
        self._start = KafkaOffsetsInitializer.latest()
        return self

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Begin at a time.

        Args:
            startup_offsets_timestamp: Milliseconds since the epoch.
        """
        self._start = KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp)
        return self

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Begin at the offsets of the group.

        Raises:
            ValueError: There is no `group.id`.
        """
        if "group.id" not in self._properties:
            raise ValueError("set_start_from_group_offsets() needs the property 'group.id'")
        is_earliest = self._properties.get("auto.offset.reset", "latest").lower() in ("earliest", "smallest")
        reset = KafkaOffsetResetStrategy.EARLIEST if is_earliest else KafkaOffsetResetStrategy.LATEST
        self._start = KafkaOffsetsInitializer.committed_offsets(reset)
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """Set whether offsets are committed to the group when a checkpoint has completed.

        Args:
            commit_on_checkpoints: True, the default, or False.
        """
        self._properties[COMMIT_OFFSETS] = str(commit_on_checkpoints).lower()
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the rows; None: they are pickled."""
        return self.produced_type


class Semantic(Enum):
    """Chooses the guarantee for rows after a failure: an older name of `DeliveryGuarantee`."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducer(KafkaSink):
    """Writes to a topic of Kafka: an older name of `KafkaSink`, which new programs take.

    Args:
        topic: The topic.
        serialization_schema: How values are made of rows.
        producer_config: Properties of the producer, `bootstrap.servers` among them; for EXACTLY_ONCE, too,
            `transactional.id`, which is what the names of the sink's transactions begin with.
        kafka_producer_pool_size: Without effect: a pool is as large as it must be.
        semantic: What becomes of rows when something fails.
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        warnings.warn(
            "FlinkKafkaProducer is an older name: use KafkaSink.builder() and stream.sink_to(...)",
            DeprecationWarning,
            stacklevel=2,
        )
        if "bootstrap.servers" not in producer_config:
            raise ValueError("a FlinkKafkaProducer needs the property 'bootstrap.servers'")
        properties = dict(producer_config)
        prefix = properties.pop("transactional.id", "")
        if semantic is Semantic.EXACTLY_ONCE and not prefix:
            raise ValueError(
                "a FlinkKafkaProducer with Semantic.EXACTLY_ONCE needs the property 'transactional.id': what the names "
                "of its transactions begin with, another for each sink of each job. "
                "KafkaSink has set_transactional_id_prefix(...) for that"
            )
        client_properties(properties)
        serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
        serializer.set_value_serialization_schema(serialization_schema)
        super().__init__(properties, serializer.build(), DeliveryGuarantee[semantic.name], prefix)

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """Set whether a checkpoint waits until the brokers have all rows. EXACTLY_ONCE always waits.

        Args:
            flush_on_checkpoint: True, as AT_LEAST_ONCE, or False, as NONE.
        """
        if self._guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            self._guarantee = DeliveryGuarantee.AT_LEAST_ONCE if flush_on_checkpoint else DeliveryGuarantee.NONE
        return self

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Refuse to lose rows that the brokers do not take.

        Args:
            log_failures_only: False.

        Returns:
            This sink. Raises ValueError for True.
        """
        return self if not log_failures_only else _refuse("set_log_failures_only(True)", "rows would be lost unnoticed")

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Refuse timestamps of rows: records have the time at which they are written.

        Args:
            write_timestamp_to_kafka: False.

        Returns:
            This sink. Raises ValueError for True.
        """
        why = "records have the time at which they are written; put the time into the row"
        return self if not write_timestamp_to_kafka else _refuse("set_write_timestamp_to_kafka(True)", why)

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Refuse to lose the rows of a transaction that timed out. Raises ValueError."""
        return _refuse("ignore_failures_after_transaction_timeout()", "rows would be lost unnoticed")


def _refuse(call: str, why: str) -> NoReturn:
    raise ValueError(f"{call} is not offered: {why}")
