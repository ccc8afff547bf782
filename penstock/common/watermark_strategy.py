"""How the rows of a stream get event time, and how far time has come: WatermarkStrategy."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Callable

from penstock.common.signatures import check_call
from penstock.common.time import Duration, Time
from penstock.common.watermark_generator import (
    NO_TIMESTAMP,
    AscendingTimestampsWatermarks,
    BoundedOutOfOrdernessWatermarks,
    MaxTimestampGenerator,
    NoWatermarksGenerator,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
)

__all__ = ["NO_TIMESTAMP", "MaxTimestampGenerator", "TimestampAssigner", "Watermark", "WatermarkGenerator",
           "WatermarkOutput", "WatermarkStrategy"]

Length = Duration | Time | datetime.timedelta | int | str
"""A length of time; a bare number is milliseconds."""


class TimestampAssigner(ABC):
    """Gives a row its event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds since the epoch. `record_timestamp` is what the row had before: `NO_TIMESTAMP`, a negative
        number, where it had none."""


@dataclass(frozen=True)
class WatermarkStrategy:
    """Made by the static methods. The others return a new strategy and leave this one as it is.

    `new_generator`: a picklable callable that makes a `WatermarkGenerator`. A row's timestamp is what
    `timestamp_assigner` says or what stands in `timestamp_column`; with neither, it is the one that the row has.
    `idle_timeout`: how long no row may come until nobody waits for this stream's watermarks any more; None: for ever.
    """

    name: str
    new_generator: Callable[[], WatermarkGenerator]
    generates_watermarks: bool = True
    timestamp_assigner: TimestampAssigner | Callable[[Any, int], int] | None = None
    timestamp_column: str | None = None
    idle_timeout: Duration | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Event time does not advance before the end of the stream."""
        return WatermarkStrategy("no_watermarks", NoWatermarksGenerator, generates_watermarks=False)

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For timestamps that never fall within a subtask's rows, or within a split of a source."""
        return WatermarkStrategy("for_monotonous_timestamps", AscendingTimestampsWatermarks)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Length) -> WatermarkStrategy:
        """For rows that come at most so much later than one with a larger timestamp.

        Raises ValueError for a negative bound."""
        bound = _length(max_out_of_orderness, "for_bounded_out_of_orderness", "the bound")
        return WatermarkStrategy(f"for_bounded_out_of_orderness({bound})", _Bounded(bound))

    @staticmethod
    def for_generator(new_generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """`new_generator` is called in the slots, once per subtask or split; a class of generators is one, too."""
        if isinstance(new_generator, WatermarkGenerator) or not callable(new_generator):
            raise TypeError("for_generator() takes a callable that makes a WatermarkGenerator, because every subtask "
                            f"has its own; got {new_generator!r}")
        if isinstance(new_generator, type) and not issubclass(new_generator, WatermarkGenerator):
            raise TypeError(f"for_generator(): {new_generator.__name__} is no WatermarkGenerator")
        return WatermarkStrategy("for_generator", new_generator)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """A TimestampAssigner, or a callable (value, record timestamp) -> milliseconds since the epoch."""
        if isinstance(timestamp_assigner, type):
            raise TypeError(f"with_timestamp_assigner() was given the class {timestamp_assigner.__name__}; give it an "
                            f"object: {timestamp_assigner.__name__}()")
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise TypeError("with_timestamp_assigner() takes a TimestampAssigner or a callable (value, record "
                            f"timestamp) -> milliseconds, got {timestamp_assigner!r}")
        extract: Any = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
        check_call("with_timestamp_assigner()", extract, ["value", "record timestamp"])
        return replace(self, timestamp_assigner=timestamp_assigner, timestamp_column=None)

    def with_timestamp_column(self, column: str) -> WatermarkStrategy:
        """Timestamps are the values of a column of the rows' type: whole milliseconds since the epoch (LONG), or
        SQL_TIMESTAMP. No row is touched for it. Whether there is such a column is checked where the strategy is
        attached to a stream."""
        if not isinstance(column, str) or not column:
            raise TypeError(f"with_timestamp_column() takes the name of a column, got {column!r}")
        return replace(self, timestamp_assigner=None, timestamp_column=column)

    def with_idleness(self, idle_timeout: Length) -> WatermarkStrategy:
        """A split of a source, or a subtask's input, without rows for so long is idle: no watermark waits for it. Time
        in which it could not be read, because of backpressure or draining, does not count."""
        timeout = _length(idle_timeout, "with_idleness", "the timeout")
        if not timeout.nanoseconds:
            raise ValueError("with_idleness(): the timeout is more than 0 ms")
        return replace(self, idle_timeout=timeout)

    @property
    def assigns_timestamps(self) -> bool:
        return self.timestamp_assigner is not None or self.timestamp_column is not None

    @property
    def extract_timestamp(self) -> Callable[[Any, int], int] | None:
        """(value, record timestamp) -> milliseconds; None: `timestamp_column`, or as the rows come."""
        assigner = self.timestamp_assigner
        return assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner

    def create_generator(self) -> WatermarkGenerator:
        """Raises TypeError where `for_generator` was given something that makes no generator."""
        generator = self.new_generator()
        if not isinstance(generator, WatermarkGenerator):
            raise TypeError(f"WatermarkStrategy.{self.name}: the callable returned {generator!r}, which is no "
                            "WatermarkGenerator")
        return generator

    def __str__(self) -> str:
        text = self.name
        if self.timestamp_column is not None:
            text += f", timestamps from column {self.timestamp_column!r}"
        if self.idle_timeout is not None:
            text += f", idle after {self.idle_timeout}"
        return text


@dataclass(frozen=True)
class _Bounded:
    """Where a partial would do, but for strategies that say the same being equal."""

    bound: Duration

    def __call__(self) -> WatermarkGenerator:
        return BoundedOutOfOrdernessWatermarks(self.bound)


def _length(given: Any, method: str, what: str) -> Duration:
    try:
        return Duration.of(given)
    except ValueError as error:
        raise ValueError(f"{method}(): {what} is a Duration of 0 ms or more, e.g. Duration.of_seconds(20); got "
                         f"{given!r}") from error
