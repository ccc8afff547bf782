"""Defines WatermarkStrategy: how the rows of a stream get event time, and the generators that let it advance."""

from __future__ import annotations

import datetime
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Callable

from penstock.common.program.signatures import check_call
from penstock.common.time import Duration, Time

NO_TIMESTAMP = -(2**63)
"""The smallest 64-bit number: the timestamp of a row that has none, and the watermark of a stream without any."""

_STATE = struct.Struct("<q")


@dataclass(frozen=True, order=True)
class Watermark:
    """Promises that no row with a timestamp (ms since the epoch) of at most `timestamp` will follow."""

    timestamp: int

    def __post_init__(self) -> None:
        if not isinstance(self.timestamp, int) or isinstance(self.timestamp, bool):
            raise TypeError(f"a watermark's timestamp is a whole number of milliseconds, got {self.timestamp!r}")
        if not NO_TIMESTAMP <= self.timestamp < 2**63:
            raise ValueError(f"a watermark's timestamp (milliseconds) must fit in 64 bits, got {self.timestamp}")

    def get_timestamp(self) -> int:
        """Return the timestamp in milliseconds since the epoch."""
        return self.timestamp


class WatermarkOutput(ABC):
    """Takes the watermarks of a generator."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """Emit a watermark, and mark the stream as active. A watermark that is not larger than the last one is ignored.

        Args:
            watermark: The watermark.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Mark the stream as idle: operators that read it with others do not wait for its watermarks."""

    @abstractmethod
    def mark_active(self) -> None:
        """Mark the stream as active, so that operators wait for its watermarks again."""


class WatermarkGenerator(ABC):
    """Makes watermarks from the timestamps of rows. There is one per subtask, or per split of a source.

    What `snapshot` returns is kept in checkpoints. By default that is nothing: a restored generator begins again, and
    the watermark does not advance until it has reached its old value.
    """

    @abstractmethod
    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        """Process a row. Called for every row, after its timestamp has been assigned.

        Args:
            event: The row.
            event_timestamp: Its timestamp in milliseconds since the epoch.
            output: Takes a watermark, if the row gives reason to emit one.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit a watermark if time has advanced. Called every `pipeline.auto-watermark-interval`.

        That is also done before the first row, and, after a restore at another parallelism, once for each old
        generator of a stream that is not a source.

        Args:
            output: Takes the watermark.
        """

    def snapshot(self) -> bytes:
        """Return the state to restore the generator from. The default is b""."""
        return b""

    def restore(self, state: bytes) -> None:
        """Continue from a snapshot. Called before the first row.

        Args:
            state: What `snapshot` returned.
        """


class MaxTimestampGenerator(WatermarkGenerator):
    """Makes watermarks from the largest timestamp of several rows.

    It is called once for a slice of a batch instead of per row.
    """

    @abstractmethod
    def on_max(self, timestamp_ms: int) -> None:
        """Process the rows since the last call.

        Args:
            timestamp_ms: The largest of their timestamps.
        """

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        self.on_max(event_timestamp)


class BoundedOutOfOrdernessWatermarks(MaxTimestampGenerator):
    """Emits the largest timestamp so far, less the bound, less 1 ms.

    The last millisecond is for rows with the same timestamp, which may follow.
    """

    def __init__(self, max_out_of_orderness: Duration) -> None:
        self._bound_ms = max_out_of_orderness.to_millis()
        self._largest_ms: int | None = None

    def on_max(self, timestamp_ms: int) -> None:
        if self._largest_ms is None or timestamp_ms > self._largest_ms:
            self._largest_ms = timestamp_ms

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._largest_ms is not None:
            output.emit_watermark(Watermark(max(self._largest_ms - self._bound_ms - 1, NO_TIMESTAMP)))

    def snapshot(self) -> bytes:
        return b"" if self._largest_ms is None else _STATE.pack(self._largest_ms)

    def restore(self, state: bytes) -> None:
        self._largest_ms = _STATE.unpack(state)[0] if state else None


class AscendingTimestampsWatermarks(BoundedOutOfOrdernessWatermarks):
    """Emits the largest timestamp so far, less 1 ms: timestamps never fall."""

    def __init__(self) -> None:
        super().__init__(Duration(0))


class NoWatermarksGenerator(MaxTimestampGenerator):
    """Emits no watermarks."""

    def on_max(self, timestamp_ms: int) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


Length = Duration | Time | datetime.timedelta | int | str
"""A length of time; a bare number is milliseconds."""


class TimestampAssigner(ABC):
    """Gives rows their event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of a row.

        Args:
            value: The row.
            record_timestamp: The timestamp that the row had before; `NO_TIMESTAMP`, a negative number, if it had none.

        Returns:
            Milliseconds since the epoch.
        """


@dataclass(frozen=True)
class WatermarkAlignmentParams:
    """Describes a group of sources that stay together in event time. See `WatermarkStrategy.with_watermark_alignment`.

    Args:
        watermark_group: The group's name.
        max_allowed_watermark_drift: How far a source may be ahead of the group's slowest one.
        update_interval: How often sources report their watermarks.
    """

    watermark_group: str
    max_allowed_watermark_drift: Duration
    update_interval: Duration


@dataclass(frozen=True)
class WatermarkStrategy:
    """Describes the timestamps of rows, and the generation of watermarks from them.

    The static methods make strategies. The other methods return a changed copy.

    A row's timestamp is what `timestamp_assigner` returns or the value of `timestamp_column`; with neither, the row
    keeps the one that it has. `new_generator` makes a `WatermarkGenerator`; both must be picklable. `idle_timeout`
    None: never idle.

    Example:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        strategy.with_timestamp_column("time").with_idleness(Duration.of_minutes(1))
    """

    name: str
    new_generator: Callable[[], WatermarkGenerator]
    generates_watermarks: bool = True
    timestamp_assigner: TimestampAssigner | Callable[[Any, int], int] | None = None
    timestamp_column: str | None = None
    idle_timeout: Duration | None = None
    alignment: WatermarkAlignmentParams | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Make a strategy without watermarks: event time does not advance before the end of the stream."""
        return WatermarkStrategy("no_watermarks", NoWatermarksGenerator, generates_watermarks=False)

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Make a strategy for timestamps that never fall.

        They may not fall within a split of a source, or within the rows of a subtask. The watermark is the largest
        timestamp so far, less 1 ms.
        """
        return WatermarkStrategy("for_monotonous_timestamps", AscendingTimestampsWatermarks)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Length) -> WatermarkStrategy:
        """Make a strategy for rows that come late by a bounded time.

        The watermark is the largest timestamp so far, less the bound, less 1 ms.

        Args:
            max_out_of_orderness: How much smaller a row's timestamp may be than the largest one before it: a
                `Duration`, or milliseconds.

        Returns:
            The strategy. Raises ValueError for a negative bound.
        """
        bound = _length(max_out_of_orderness, "for_bounded_out_of_orderness", "the bound")
        return WatermarkStrategy(f"for_bounded_out_of_orderness({bound})", _Bounded(bound))

    @staticmethod
    def for_generator(new_generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Make a strategy with a generator of your own.

        Args:
            new_generator: A picklable function without arguments that makes a `WatermarkGenerator`, such as its class.
                It is called in the slots, once per subtask or split.

        Returns:
            The strategy.

        Raises:
            TypeError: The argument is a generator itself, or makes none.
        """
        if isinstance(new_generator, WatermarkGenerator) or not callable(new_generator):
            raise TypeError(
                "for_generator() takes a callable that makes a WatermarkGenerator, because every subtask "
                f"has its own; got {new_generator!r}"
            )
        if isinstance(new_generator, type) and not issubclass(new_generator, WatermarkGenerator):
            raise TypeError(f"for_generator(): {new_generator.__name__} is no WatermarkGenerator")
        return WatermarkStrategy("for_generator", new_generator)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Take timestamps from a function of the row.

        Args:
            timestamp_assigner: A `TimestampAssigner`, or a function (row, timestamp before) -> milliseconds since the
                epoch.

        Returns:
            The changed strategy.

        Raises:
            TypeError: The argument is neither.
        """
        if isinstance(timestamp_assigner, type):
            raise TypeError(
                f"with_timestamp_assigner() was given the class {timestamp_assigner.__name__}; give it an "
                f"object: {timestamp_assigner.__name__}()"
            )
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise TypeError(
                "with_timestamp_assigner() takes a TimestampAssigner or a callable (value, record "
                f"timestamp) -> milliseconds, got {timestamp_assigner!r}"
            )
        extract: Any = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
        check_call("with_timestamp_assigner()", extract, ["value", "record timestamp"])
        return replace(self, timestamp_assigner=timestamp_assigner, timestamp_column=None)

    def with_timestamp_column(self, column: str) -> WatermarkStrategy:
        """Take timestamps from a column, without a Python call per row.

        Args:
            column: The name of a column of the rows' type: milliseconds since the epoch (LONG), or SQL_TIMESTAMP. It is
                checked when the strategy is attached to a stream.

        Returns:
            The changed strategy.

        Raises:
            TypeError: The argument is no name.
        """
        if not isinstance(column, str) or not column:
            raise TypeError(f"with_timestamp_column() takes the name of a column, got {column!r}")
        return replace(self, timestamp_assigner=None, timestamp_column=column)

    def with_idleness(self, idle_timeout: Length) -> WatermarkStrategy:
        """Mark a split of a source, or a subtask's input, as idle when it has had no rows for some time.

        No watermark waits for an idle one. Time in which it could not be read, because of backpressure or draining,
        does not count.

        Args:
            idle_timeout: A `Duration`, or milliseconds.

        Returns:
            The changed strategy.

        Raises:
            ValueError: The timeout is not more than 0 ms.
        """
        timeout = _length(idle_timeout, "with_idleness", "the timeout")
        if not timeout.nanoseconds:
            raise ValueError("with_idleness(): the timeout is more than 0 ms")
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: Length, update_interval: Length = 1000
    ) -> WatermarkStrategy:
        """Keep sources together in event time, so that state does not grow with what fast ones read ahead.

        A source of the group pauses while its watermark is ahead of the smallest one in the group by more than the
        allowed drift. Idle sources and finished ones hold nobody back. Only for `env.from_source`; pausing concerns a
        subtask with all its splits.

        Args:
            watermark_group: The name of the group; several sources may share it.
            max_allowed_watermark_drift: A `Duration`, or milliseconds.
            update_interval: How often sources report their watermarks, a `Duration` or milliseconds; by default 1 s.

        Returns:
            The changed strategy.

        Raises:
            ValueError: The group has no name, or the interval is not more than 0 ms.
        """
        method = "with_watermark_alignment"
        if not isinstance(watermark_group, str) or not watermark_group:
            raise ValueError(f"{method}(): a group has a name, got {watermark_group!r}")
        if not self.generates_watermarks:
            raise ValueError(f"{method}(): a strategy without watermarks has nothing to align: {self.name}")
        drift = _length(max_allowed_watermark_drift, method, "the allowed drift")
        interval = _length(update_interval, method, "the update interval")
        if not interval.nanoseconds:
            raise ValueError(f"{method}(): the update interval is more than 0 ms")
        return replace(self, alignment=WatermarkAlignmentParams(watermark_group, drift, interval))

    @property
    def assigns_timestamps(self) -> bool:
        """Return True if the strategy assigns timestamps, by a function or a column."""
        return self.timestamp_assigner is not None or self.timestamp_column is not None

    @property
    def extract_timestamp(self) -> Callable[[Any, int], int] | None:
        """Return the function (row, timestamp before) -> milliseconds.

        None: timestamps come from a column, or stay as they are.
        """
        assigner = self.timestamp_assigner
        return assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner

    def create_generator(self) -> WatermarkGenerator:
        """Make a generator.

        Called in the slots.

        Raises:
            TypeError: The function given to `for_generator` returned something else.
        """
        generator = self.new_generator()
        if not isinstance(generator, WatermarkGenerator):
            raise TypeError(
                f"WatermarkStrategy.{self.name}: the callable returned {generator!r}, which is no WatermarkGenerator"
            )
        return generator

    def __str__(self) -> str:
        text = self.name
        if self.timestamp_column is not None:
            text += f", timestamps from column {self.timestamp_column!r}"
        if self.idle_timeout is not None:
            text += f", idle after {self.idle_timeout}"
        if self.alignment is not None:
            drift = self.alignment.max_allowed_watermark_drift
            text += f", at most {drift} ahead of group {self.alignment.watermark_group!r}"
        return text


@dataclass(frozen=True)
class _Bounded:
    """Makes generators like a functools.partial, but is equal to another one with the same bound."""

    bound: Duration

    def __call__(self) -> WatermarkGenerator:
        return BoundedOutOfOrdernessWatermarks(self.bound)


def _length(given: Any, method: str, what: str) -> Duration:
    try:
        return Duration.of(given)
    except ValueError as error:
        raise ValueError(
            f"{method}(): {what} is a Duration of 0 ms or more, e.g. Duration.of_seconds(20); got {given!r}"
        ) from error


class AssignerWithPeriodicWatermarksWrapper:
    """Refuses Flink's assigner that wraps a Java class: there is no JVM here."""

    def __init__(self, j_assigner_with_periodic_watermarks: Any) -> None:
        raise TypeError(
            "AssignerWithPeriodicWatermarksWrapper wraps a Java class, and there is no JVM here: use a "
            "WatermarkStrategy, or a WatermarkGenerator in WatermarkStrategy.for_generator()"
        )
