"""Computes the event time of simulated rows.

A row's event time follows from its number, so that any function that sees a row knows its timestamp. A function that
holds rows back, or emits them by window, gives them another one: a clock computes which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from penstock.common.time import Duration
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from simulation.world.world_hooks import Row

Clock = Callable[[Row], int]

STEP_MS = 3
JITTER_MS = 17
BOUND_MS = 20
"""More than the rows of a split are out of order."""


@dataclass(frozen=True)
class RowTime:
    """Puts rows of a split out of order by less than `JITTER_MS`."""

    def __call__(self, row: Row) -> int:
        return row[1] * STEP_MS + row[1] * 7919 % JITTER_MS


@dataclass(frozen=True)
class Later:
    clock: Clock
    delay_ms: int

    def __call__(self, row: Row) -> int:
        return self.clock(row) + self.delay_ms


@dataclass(frozen=True)
class WindowEnd:
    """Returns the last millisecond of the window that a row is in."""

    clock: Clock
    size_ms: int
    offset_ms: int = 0

    def start(self, row: Row) -> int:
        time_ms = self.clock(row)
        return time_ms - (time_ms - self.offset_ms) % self.size_ms

    def __call__(self, row: Row) -> int:
        return self.start(row) + self.size_ms - 1


@dataclass(frozen=True)
class Assigner:
    """Assigns timestamps. `label` makes a row of a source's value; None: the values are rows."""

    clock: Clock
    label: Callable[[int], Row] | None = None

    def __call__(self, value: Any, record_timestamp: int) -> int:
        return self.clock(value if self.label is None else self.label(value))


class Punctuated(WatermarkGenerator):
    """Emits a watermark with each row, and keeps no state: a restored one learns again."""

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(event_timestamp - BOUND_MS - 1))

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


class Counting(WatermarkGenerator):
    """Emits a watermark with every fifth row, of the largest time that it has seen; it keeps both in its state."""

    def __init__(self) -> None:
        self._rows = 0
        self._largest_ms = -(2**40)

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        self._rows += 1
        self._largest_ms = max(self._largest_ms, event_timestamp)
        if self._rows % 5 == 0:
            output.emit_watermark(Watermark(self._largest_ms - BOUND_MS - 1))

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...

    def snapshot(self) -> bytes:
        return f"{self._rows} {self._largest_ms}".encode()

    def restore(self, state: bytes) -> None:
        self._rows, self._largest_ms = map(int, state.split())


class IdleWhenAskedInVain(Punctuated):
    """Emits a watermark with each row, and says that it is idle when it has been asked many times since the last."""

    def __init__(self) -> None:
        self._asked = 0

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        self._asked = 0
        super().on_event(event, event_timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self._asked += 1
        if self._asked > 20:
            output.mark_idle()


def bounded() -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))


STRATEGIES: dict[str, Callable[[], WatermarkStrategy]] = {
    "bounded": bounded,
    "bounded, idle after 100 h": lambda: bounded().with_idleness(Duration.of_hours(100)),
    "bounded, idle after 5 ms": lambda: bounded().with_idleness(Duration.of_millis(5)),
    "bounded, idle after 60 ms": lambda: bounded().with_idleness(Duration.of_millis(60)),
    "punctuated": lambda: WatermarkStrategy.for_generator(Punctuated),
    "counting": lambda: WatermarkStrategy.for_generator(Counting),
    "monotonous": WatermarkStrategy.for_monotonous_timestamps,
}
PATIENT = ("bounded", "bounded", "bounded, idle after 100 h", "punctuated", "counting")
"""The strategies with which no row of a split is late, whatever happens."""

IDLE = ("bounded, idle after 5 ms", "bounded, idle after 60 ms")
HASTY = ("monotonous", *IDLE)
