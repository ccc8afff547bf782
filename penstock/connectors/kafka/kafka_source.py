"""Reads topics of Kafka: the source that a program builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import ReaderContext, Source, SourceError, SourceReader, SplitEnumerator
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.kafka.client import client_properties, say_what_has_no_effect
from penstock.connectors.kafka.discovery import Discovery, Subscription
from penstock.connectors.kafka.enumerator import KafkaEnumerator
from penstock.connectors.kafka.kafka_reader import KafkaReader, check_consumer
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.messages.decoding import decoder_of

DISCOVERY_INTERVAL = "partition.discovery.interval.ms"
COMMIT_OFFSETS = "commit.offsets.on.checkpoint"
EXCLUDE_INTERNAL = "exclude.internal.topics"
DISCOVERY_INTERVAL_MS = 300_000.0


class KafkaSource(Source):
    """Reads topics of Kafka. Make it with `KafkaSource.builder()`.

    Offsets are part of the checkpoint, and are committed to the consumer group when it has completed. Rows have the
    timestamps of their records; each partition is a split with a watermark of its own.

    Example:
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers("localhost:9092")
            .set_topics("orders")
            .set_group_id("billing")
            .set_starting_offsets(KafkaOffsetsInitializer.earliest())
            .set_value_only_deserializer(SimpleStringSchema())
            .build()
        )
        env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "orders")
    """

    has_timestamps = True

    def __init__(
        self,
        properties: Mapping[str, str],
        subscription: Subscription,
        schema: DeserializationSchema,
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
        bounded: bool,
        malformed: MalformedRows,
    ) -> None:
        self.bounded = bounded
        self._properties = dict(properties)
        self._subscription = subscription
        self._schema = schema
        self._start = start
        self._stop = stop
        self._malformed = malformed

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder of the source."""
        return KafkaSourceBuilder()

    @property
    def produced_type(self) -> TypeInformation | None:
        return decoder_of(self._schema).produced_type

    @property
    def rejected_tag_id(self) -> str | None:
        return self._malformed.tag_id

    @property
    def rejected_type(self) -> TypeInformation | None:
        return MALFORMED_ROW_TYPE if self._malformed.is_side_output else None

    def describe(self) -> dict[str, str]:
        """Return servers, topics, group, offsets and format. Properties, which may be secrets, are left out."""
        return {
            "connector": "Kafka",
            "servers": self._properties["bootstrap.servers"],
            "topics": str(self._subscription),
            "group": self._properties.get("group.id", "none"),
            "begins at": str(self._start),
            "ends at": "no end" if self._stop is None else str(self._stop),
            "format": type(self._schema).__name__,
        }

    def validate(self) -> None:
        """Ask the brokers for the topics, and a schema registry. Raises `SourceError`, which says what is missing."""
        decoder_of(self._schema).check()
        discovery = self._discovery()
        check_consumer(client_properties(self._properties))
        discovery.check()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        interval_ms = float(self._properties.get(DISCOVERY_INTERVAL, DISCOVERY_INTERVAL_MS))
        adds = not self.bounded and not self._subscription.partitions
        commits = str(self._properties.get(COMMIT_OFFSETS, "true")).lower() != "false"
        interval = interval_ms if interval_ms > 0 else None
        return KafkaEnumerator(self._discovery(), parallelism, interval, adds, commits, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return KafkaReader(client_properties(self._properties), decoder_of(self._schema), self._malformed, context)

    def _discovery(self) -> Discovery:
        try:
            properties = client_properties(self._properties)
        except ValueError as error:
            raise SourceError(str(error)) from None
        excludes = str(self._properties.get(EXCLUDE_INTERNAL, "true")).lower() != "false"
        return Discovery(properties, replace(self._subscription, excludes_internal=excludes), self._start, self._stop)


class KafkaSourceBuilder:
    """Builds a `KafkaSource`. The servers, what to read and the deserializer must be set."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._schema: DeserializationSchema | None = None
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._malformed = MalformedRows.fail()

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers to ask first.

        Args:
            bootstrap_servers: `host:port`, or several of them with commas.

        Returns:
            The builder.
        """
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group to which offsets are committed. Partitions are not divided among its members.

        Args:
            group_id: The group.

        Returns:
            The builder.
        """
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read all partitions of topics.

        Args:
            topics: Their names. They must exist when the job starts.

        Returns:
            The builder.
        """
        return self._subscribe(Subscription(topics=tuple(topics)))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all partitions of the topics whose whole name matches a pattern, later ones too.

        Topics of the brokers' own, such as `__consumer_offsets`, are left out, unless the pattern is the name of one,
        or `exclude.internal.topics` is false.

        Args:
            topic_pattern: A regular expression of Python's.

        Returns:
            The builder.

        Raises:
            ValueError: It is none.
        """
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise ValueError(f"the topic pattern {topic_pattern!r} is no regular expression: {error}") from None
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read only these partitions.

        Args:
            partitions: The partitions.

        Returns:
            The builder.
        """
        return self._subscribe(Subscription(partitions=tuple(sorted(partitions))))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise ValueError("a KafkaSource reads topics, a topic pattern or partitions: set one of them, once")
        if not (subscription.topics or subscription.pattern or subscription.partitions):
            raise ValueError("a KafkaSource needs at least one topic or partition")
        self._subscription = subscription
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set the start of partitions if there is no checkpoint. The default is the earliest record.

        Partitions that are found while the job runs begin at their earliest record.

        Args:
            starting_offsets_initializer: The initializer.
        """
        self._start = starting_offsets_initializer
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop each partition at an offset, though the source counts as endless.

        Args:
            stopping_offsets_initializer: The first offset that is not read. It is found out when the job starts.
        """
        self._stop, self._bounded = stopping_offsets_initializer, False
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop each partition at an offset. The source ends, and no partitions are looked for while the job runs.

        Args:
            stopping_offsets_initializer: The first offset that is not read. It is found out when the job starts.
        """
        self._stop, self._bounded = stopping_offsets_initializer, True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Set the deserializer of values to rows. Keys and headers are not read.

        Args:
            deserialization_schema: `SimpleStringSchema`, `ByteArraySchema`, rows of JSON or CSV, or your own
                `DeserializationSchema`, which is called for each record.

        Raises:
            TypeError: It is no schema.
        """
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise TypeError(f"a deserializer is a DeserializationSchema, got {deserialization_schema!r}")
        self._schema = deserialization_schema
        return self

    def set_malformed_records(self, malformed: MalformedRows) -> KafkaSourceBuilder:
        """Set the handling of records whose value or event time cannot be read.

        Time is read by the strategy of `from_source`: a null in its timestamp column, or an error of its assigner.

        Args:
            malformed: `MalformedRows.fail()` (the default), `.skip()` or `.side_output(tag)`. In its rows, `file` names
                topic and partition, and `line` is the offset.
        """
        self._malformed = malformed
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the prefix of this source's client ids, which brokers log.

        Args:
            prefix: The name.

        Returns:
            The builder.
        """
        return self.set_property("client.id", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the consumer, by the name that Kafka's Java client or librdkafka has for it.

        Besides, `partition.discovery.interval.ms` (300000; 0: never) says how often new partitions are looked for, and
        `commit.offsets.on.checkpoint` (true) whether offsets are committed to the group.

        Args:
            key: The name.
            value: The value.
        """
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties.

        Args:
            props: See `set_property`.
        """
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        """Return the source.

        Returns:
            The source.

        Raises:
            ValueError: Something is missing, or a property cannot be translated.
        """
        missing = [
            call
            for call, is_set in (
                ("set_bootstrap_servers(...)", "bootstrap.servers" in self._properties),
                ("set_topics(...)", self._subscription is not None),
                ("set_value_only_deserializer(...)", self._schema is not None),
            )
            if not is_set
        ]
        if missing:
            raise ValueError(f"a KafkaSource needs {', '.join(missing)}")
        client_properties(self._properties)
        say_what_has_no_effect(self._properties)
        if self._start.needs_group and "group.id" not in self._properties:
            raise ValueError("committed_offsets() are those of a consumer group: set_group_id(...)")
        assert self._subscription is not None and self._schema is not None
        return KafkaSource(
            self._properties, self._subscription, self._schema, self._start, self._stop, self._bounded, self._malformed
        )
