"""Defines the offsets at which reading of partitions begins and ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """Names a partition of a topic."""

    topic: str
    partition: int


class KafkaOffsetResetStrategy(Enum):
    """Chooses the start if there is no offset, or it does not exist any more."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class Kind(Enum):
    """Lists the ways to choose an offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    COMMITTED = "committed"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Chooses the offset at which each partition begins, or ends. Make it with one of its functions."""

    kind: Kind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    timestamp_ms: int = 0
    by_partition: dict[KafkaTopicPartition, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"timestamp {self.timestamp_ms}" if self.kind is Kind.TIMESTAMP else self.kind.value

    @property
    def needs_group(self) -> bool:
        """Return True if the offsets are those of a consumer group."""
        return self.kind is Kind.COMMITTED

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Begin at the first record that is still there."""
        return KafkaOffsetsInitializer(Kind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Begin, or end, behind the last record that is there when the job starts."""
        return KafkaOffsetsInitializer(Kind.LATEST)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Begin, or end, at the first record of this time or later; behind the last one if there is none.

        Args:
            timestamp: Milliseconds since the epoch.

        Returns:
            The initializer.

        Raises:
            ValueError: It is negative.
        """
        if timestamp < 0:
            raise ValueError(f"timestamp is in milliseconds since the epoch, and not negative; got {timestamp}")
        return KafkaOffsetsInitializer(Kind.TIMESTAMP, timestamp_ms=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Begin, or end, at the offsets that the consumer group has committed.

        Args:
            offset_reset_strategy: Where to begin in partitions without one; NONE: the job fails.

        Returns:
            The initializer.
        """
        return KafkaOffsetsInitializer(Kind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: dict[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Begin, or end, at given offsets.

        Args:
            offsets: The offset of each partition.
            offset_reset_strategy: Where to begin in partitions that have none here; NONE: the job fails.

        Returns:
            The initializer.

        Raises:
            ValueError: An offset is negative.
        """
        wrong = {name: offset for name, offset in offsets.items() if offset < 0}
        if wrong:
            raise ValueError(f"offsets are not negative; got {wrong}")
        return KafkaOffsetsInitializer(Kind.OFFSETS, offset_reset_strategy, by_partition=dict(offsets))
