"""Asks brokers which partitions there are, and where they begin and end. Every call may block."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.base import SourceChanged, SourceError
from penstock.connectors.kafka.client import (
    CALL_LIMIT_S,
    ClientErrors,
    admin_library,
    client_library,
    make,
    reach,
    reason_of,
)
from penstock.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    Kind,
)


@dataclass(frozen=True)
class Subscription:
    """Describes the partitions to read: topics, topics by a pattern, or partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()
    excludes_internal: bool = True

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"pattern {self.pattern!r}"
        return ", ".join(self.topics) or ", ".join(f"{p.topic}/{p.partition}" for p in self.partitions)


@dataclass(frozen=True)
class Found:
    """Holds new partitions with their first offsets and those at which they end, and the ids of all topics."""

    partitions: dict[KafkaTopicPartition, tuple[int, int | None]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)


class Discovery:
    """Asks for the partitions of a source. `properties` are the client's, translated."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        subscription: Subscription,
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
    ) -> None:
        self._properties = dict(properties)
        self._subscription = subscription
        self._start = start
        self._stop = stop
        self._admin: Any = None
        self._errors = ClientErrors()
        self._consumer: Any = None

    @property
    def has_group(self) -> bool:
        """Return True if there is a consumer group to commit to."""
        return "group.id" in self._properties

    def check(self) -> None:
        """Raise `SourceError` if the brokers do not answer, or a topic is missing."""
        self._partitions()

    def find(self, known: Iterable[KafkaTopicPartition], topic_ids: Mapping[str, str], is_first: bool) -> Found:
        """Find partitions that are not known.

        Args:
            known: What has been handed out.
            topic_ids: The ids of topics that have been found before. A topic of another id was made again.
            is_first: False: partitions that are found now begin at their earliest record.

        Returns:
            The partitions.

        Raises:
            SourceChanged: A topic was deleted, or deleted and made again.
        """
        if topic_ids:
            self.check_unchanged(topic_ids)
        partitions = self._partitions()
        ids = self._topic_ids({p.topic for p in partitions})
        new = [partition for partition in partitions if partition not in set(known)]
        if not new:
            return Found({}, ids)
        start = self._start if is_first else KafkaOffsetsInitializer.earliest()
        first = self._offsets(start, new, "to begin at")
        last = {} if self._stop is None else self._offsets(self._stop, new, "to end at")
        return Found({p: (first[p], last.get(p)) for p in new}, ids)

    def check_unchanged(self, topic_ids: Mapping[str, str]) -> None:
        """Look whether topics are still those that the job began to read.

        Args:
            topic_ids: Their ids.

        Raises:
            SourceChanged: One was deleted, or deleted and made again.
        """
        listed = reach(self._the_admin(), self._errors, self._servers, SourceError).topics
        for topic in topic_ids:
            if topic not in listed and self._subscription.pattern is None:
                raise SourceChanged(
                    f"topic {topic!r} was deleted while the job reads it, or this user may not see it any more: "
                    "correct set_topics(...), and start the job without the state of this source"
                )
        for topic, topic_id in self._topic_ids({topic for topic in topic_ids if topic in listed}).items():
            if topic_ids[topic] != topic_id:
                raise SourceChanged(
                    f"topic {topic!r} was deleted and made again since the job has begun to read it, so the offsets of "
                    "its checkpoints mean nothing any more: start the job without them (allow the source's state to be "
                    "dropped, or change its uid)"
                )

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit offsets to the consumer group.

        Args:
            offsets: The offset behind the last record that was read, by partition.
        """
        library = client_library()
        at = [library.TopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        if at:
            self._call("commit offsets", lambda: self._the_consumer().commit(offsets=at, asynchronous=False))

    # ---- questions ----------------------------------------------------------------------------------------------

    def _partitions(self) -> list[KafkaTopicPartition]:
        wanted = self._subscription
        listed = reach(self._the_admin(), self._errors, self._servers, SourceError).topics
        if wanted.pattern is not None:
            names = self._without_internal([name for name in listed if re.fullmatch(wanted.pattern, name)])
        else:
            names = list(wanted.topics) or sorted({p.topic for p in wanted.partitions})
            missing = [name for name in names if name not in listed]
            if missing:
                raise SourceError(
                    f"there is no topic {', '.join(map(repr, missing))} at {self._servers}, or this user may not see "
                    "it: make it, or correct set_topics(...). set_topic_pattern(...) reads topics that come later"
                )
        found = [KafkaTopicPartition(name, number) for name in names for number in listed[name].partitions]
        if not wanted.partitions:
            return sorted(found)
        absent = [p for p in wanted.partitions if p not in found]
        if absent:
            names = [f"{p.topic}/{p.partition}" for p in absent]
            raise SourceError(f"there is no partition {', '.join(names)} at {self._servers}: correct set_partitions()")
        return list(wanted.partitions)

    def _without_internal(self, names: list[str]) -> list[str]:
        """Leave out the brokers' own topics, as Java's client does, unless the pattern is the name of one."""
        pattern = self._subscription.pattern
        asked = {name for name in names if name.startswith("__") and name != (pattern or "").replace("\\", "")}
        if not asked or not self._subscription.excludes_internal:
            return names
        described = self._describe(asked)
        return [name for name in names if name not in asked or not described[name].is_internal]

    def _topic_ids(self, topics: set[str]) -> dict[str, str]:
        return {name: str(found.topic_id) for name, found in self._describe(topics).items()}

    def _describe(self, topics: set[str]) -> dict[str, Any]:
        if not topics:
            return {}
        library = client_library()
        asked = self._the_admin().describe_topics(library.TopicCollection(sorted(topics)), request_timeout=CALL_LIMIT_S)
        return {name: self._call(f"describe topic {name!r}", future.result) for name, future in asked.items()}

    def _offsets(
        self, initializer: KafkaOffsetsInitializer, partitions: list[KafkaTopicPartition], what: str
    ) -> dict[KafkaTopicPartition, int]:
        spec = admin_library().OffsetSpec
        match initializer.kind:
            case Kind.EARLIEST:
                return self._listed(partitions, spec.earliest())
            case Kind.LATEST:
                return self._listed(partitions, spec.latest())
            case Kind.TIMESTAMP:
                found = self._listed(partitions, spec.for_timestamp(initializer.timestamp_ms))
            case Kind.COMMITTED:
                found = self._committed(partitions)
            case Kind.OFFSETS:
                found = {p: initializer.by_partition.get(p, -1) for p in partitions}
        without = [p for p in partitions if found[p] < 0]
        if not without:
            return found
        if initializer.kind is Kind.TIMESTAMP:
            return found | self._listed(without, spec.latest())
        if initializer.reset is KafkaOffsetResetStrategy.NONE:
            names = ", ".join(f"{p.topic}/{p.partition}" for p in without)
            raise SourceError(
                f"no offset {what} is {initializer.kind.value} for {names}: give a KafkaOffsetResetStrategy, EARLIEST "
                "or LATEST, for partitions without one"
            )
        is_latest = initializer.reset is KafkaOffsetResetStrategy.LATEST
        return found | self._listed(without, spec.latest() if is_latest else spec.earliest())

    def _listed(self, partitions: list[KafkaTopicPartition], spec: Any) -> dict[KafkaTopicPartition, int]:
        library = client_library()
        committed = str(self._properties.get("isolation.level", "read_committed")) == "read_committed"
        level = library.IsolationLevel.READ_COMMITTED if committed else library.IsolationLevel.READ_UNCOMMITTED
        asked = self._the_admin().list_offsets(
            {library.TopicPartition(p.topic, p.partition): spec for p in partitions},
            isolation_level=level,
            request_timeout=CALL_LIMIT_S,
        )
        found = {}
        for at, future in asked.items():
            result = self._call(f"ask for the offsets of {at.topic}/{at.partition}", future.result)
            found[KafkaTopicPartition(at.topic, at.partition)] = int(result.offset)
        return found

    def _committed(self, partitions: list[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        library = client_library()
        at = [library.TopicPartition(p.topic, p.partition) for p in partitions]
        answered = self._call(
            "ask for committed offsets", lambda: self._the_consumer().committed(at, timeout=CALL_LIMIT_S)
        )
        return {KafkaTopicPartition(a.topic, a.partition): a.offset for a in answered}

    # ---- clients ------------------------------------------------------------------------------------------------

    @property
    def _servers(self) -> str:
        return str(self._properties["bootstrap.servers"])

    def _the_admin(self) -> Any:
        if self._admin is None:
            of_consumers = ("group.id", "isolation.level", "fetch.", "queued.", "max.poll.", "session.", "heartbeat.")
            properties = {name: v for name, v in self._properties.items() if not name.startswith(of_consumers)}
            self._admin = make(admin_library().AdminClient, properties | {"error_cb": self._errors}, SourceError)
        return self._admin

    def _the_consumer(self) -> Any:
        if self._consumer is None:
            properties = self._properties | {"enable.auto.commit": False}
            self._consumer = make(client_library().Consumer, properties, SourceError)
        return self._consumer

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except client_library().KafkaException as error:
            raise SourceError(
                f"Kafka at {self._servers} could not be asked to {what}, for {self._subscription}: {reason_of(error)}. "
                "Check that the brokers run, set_bootstrap_servers(...), and security.protocol and sasl.* if they "
                "want them"
            ) from None
