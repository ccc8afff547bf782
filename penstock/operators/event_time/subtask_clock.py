"""Drives a subtask's event time: from its inputs or its own generators in, to its outputs out."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Callable, Mapping, Sequence

from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS, WatermarkValve
from penstock.protocol.values.elements import WATERMARK_MAX_MS, Active, Idle, InBandEvent, Pauses, Watermark


def clock_number(operator_uid: str, subtask: int) -> int:
    """Return the number that names the generators of a subtask in `Pauses`. It is the same over restarts."""
    return int.from_bytes(blake2b(f"{operator_uid}:{subtask}".encode(), digest_size=8).digest(), "big") >> 1


class SubtaskClock:
    """Follows event time from the inputs, or from our own generators, to the outputs.

    Args:
        time: How far event time is, as it was restored.
        generation: Our own generators; None if watermarks come through the inputs.
        emits_time: True if the outputs carry event time.
        is_idle: True if the outputs were told that we are idle, before the restore.
        number: Names our own generators among the clocks of the job (`clock_number`).
        pauses: The ended pauses of each clock that the outputs had been sent before the restore.
        ends_only: True: our own generators are asked only at the end of the input.
        emit: Puts an event on all outputs.
    """

    def __init__(
        self,
        valve: WatermarkValve,
        time: EventTime,
        generation: WatermarkGenerators | None,
        emits_time: bool,
        is_idle: bool,
        emit: Callable[[InBandEvent], None],
        monotonic_ms: Callable[[], float],
        number: int = 0,
        pauses: Mapping[int, int] | None = None,
        ends_only: bool = False,
    ) -> None:
        self.valve = valve
        self.time = time
        self.generation = generation
        self.said_idle = is_idle
        self.said_pauses = dict(pauses or {})
        self._number = number
        self._ends_only = ends_only
        self._has_ended = False
        self._emits_time = emits_time
        self._emit = emit
        self._monotonic_ms = monotonic_ms

    def on_inputs(self, watermark_ms: int | None) -> None:
        """Handle the valve's result after an event. If the vertex has generators of its own, only the end counts."""
        if self.valve.has_news:
            self._pass_on_pauses()
        if self.generation is None:
            if watermark_ms is not None:
                self.time.advance(watermark_ms)
            self._emit_idleness_of_inputs()
        elif watermark_ms == WATERMARK_MAX_MS:
            self.end()

    def wait_for(self, splits: Sequence[str]) -> None:
        """Note that the reader has been assigned splits, of which nothing has been read."""
        if self.generation is not None:
            self.generation.wait_for(splits)

    def has_no_split(self, has_gaps: bool) -> None:
        """Note that the source has no split for this subtask now. It is idle until it gets one.

        `has_gaps`: splits will follow that continue where its former ones ended. Then it stays at the watermark that it
        had reached with these: the time of the others would make the next rows late.
        """
        if self.generation is not None and not (has_gaps and self.generation.watermark_ms > WATERMARK_MIN_MS):
            self.generation.has_none()

    def on_finished_splits(self, splits: Sequence[str]) -> None:
        """Remove splits that were read to their ends."""
        if self.generation is not None:
            self.generation.on_finished(splits)

    def end(self) -> None:
        """End event time: nothing follows. The generators' last watermark comes before the end, as in Flink, so that
        timers up to it see no later time.
        """
        if self.generation is not None and not self._has_ended:
            self.time.advance(min(self.generation.finish(), WATERMARK_MAX_MS))
        self._has_ended = True
        if not self.time.behind:
            self.time.advance(WATERMARK_MAX_MS)

    def pause(self) -> None:
        """Pause idleness: nothing can be read for a while, so no split becomes idle from that."""
        if self.generation is not None:
            self.generation.pause()

    def hold(self) -> None:
        """Pause, and end idleness: the source may not read, so rows may be there. Without this: a source that had been
        idle when it began to wait for others of its group stays so, and the rows that come meanwhile are late."""
        if self.generation is not None:
            self.generation.pause()
            self.generation.end_silence()
            if not self.time.behind:
                self.emit_idleness(self.generation.idle)

    def tick(self) -> bool:
        """Ask our own generators. Returns whether time has advanced."""
        generation = self.generation
        if generation is None or self._ends_only:
            return False
        if generation.advance(self._monotonic_ms()):
            self.time.advance(generation.watermark_ms)
        if not self.time.behind:
            self.emit_idleness(generation.idle)
        return self.time.behind

    def emit_watermark(self) -> None:
        """Emit the watermark, now that all that was due has fired. The last watermark goes with the end of data."""
        self.time.emitted_ms = self.time.current_ms
        if self.time.emitted_ms < WATERMARK_MAX_MS:
            self.emit_idleness(False)
            self._emit(Watermark(self.time.emitted_ms))
            if self.generation is None:
                self._emit_idleness_of_inputs()
        if self._has_ended:
            self.time.advance(WATERMARK_MAX_MS)

    def emit_idleness(self, idle: bool) -> None:
        """Emit whether this subtask has no time to wait for, if that has changed."""
        if idle == self.said_idle or not self._emits_time:
            return
        self.said_idle = idle
        ended = self.said_pauses.get(self._number)
        if not idle:
            # Whoever hears of the end of the pause must wait for us already.
            self._emit(Active())
            if self.generation is not None:
                self._emit_pauses(self._number, 0 if ended is None else ended + 1)
            return
        if self.generation is not None and ended is None:
            self._emit_pauses(self._number, 0)
        self._emit(Idle())

    def _emit_idleness_of_inputs(self) -> None:
        # 5.8: "idle" follows the rows of timers that are due, and the watermark behind them.
        if not (self.valve.is_idle and self.time.behind):
            self.emit_idleness(self.valve.is_idle)

    def _pass_on_pauses(self) -> None:
        """Tell the outputs of the pauses that the inputs have heard of, before anything that follows them."""
        self.valve.has_news = False
        for clock, count in self.valve.pauses.items():
            # A restored valve knows an older count of our own pauses.
            if count > self.said_pauses.get(clock, -1):
                self._emit_pauses(clock, count)

    def _emit_pauses(self, clock: int, count: int) -> None:
        self.said_pauses[clock] = count
        if self._emits_time:
            self._emit(Pauses(clock, count))

    def on_quiet(self) -> float | None:
        """Return the time after which our own generators have to be asked again, in ms, as there is nothing to do.
        None: not without a row (`pipeline.auto-watermark-interval` is 0).
        """
        if self.generation is None or self._ends_only:
            return None
        self.generation.on_quiet()
        wait_ms = self.generation.next_deadline_ms() - self._monotonic_ms()
        return max(0.1, wait_ms) if math.isfinite(wait_ms) else None
