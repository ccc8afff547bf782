"""How a source's rows get event time. Watermarks are not generated yet: only `no_watermarks()` can be used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.time import Duration


class TimestampAssigner(ABC):
    """Gives a row its event time, in milliseconds."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int: ...


class WatermarkStrategy:
    """Made by the static methods. `generates_watermarks` tells whether a source has to know time."""

    def __init__(self, name: str, generates_watermarks: bool, out_of_orderness: Duration | None = None) -> None:
        self.name = name
        self.generates_watermarks = generates_watermarks
        self.out_of_orderness = out_of_orderness
        self.timestamp_assigner: TimestampAssigner | None = None
        self.idle_timeout: Duration | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        return WatermarkStrategy("no_watermarks", False)

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        return WatermarkStrategy("for_monotonous_timestamps", True, Duration(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        return WatermarkStrategy("for_bounded_out_of_orderness", True, Duration.of(max_out_of_orderness))

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        self.timestamp_assigner = timestamp_assigner
        return self

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        self.idle_timeout = Duration.of(idle_timeout)
        return self

    def refusal(self) -> str | None:
        """Why this strategy cannot be used yet; None: it can."""
        for used, name in ((self.generates_watermarks, self.name),
                           (self.timestamp_assigner is not None, "with_timestamp_assigner"),
                           (self.idle_timeout is not None, "with_idleness")):
            if used:
                return (f"WatermarkStrategy.{name}: event time comes with a later release; "
                        "use WatermarkStrategy.no_watermarks()")
        return None
