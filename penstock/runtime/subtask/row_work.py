"""Runs slices through a chain of row functions, which may stop in the middle of a row when the outputs are full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import pyarrow as pa

from penstock.common.clock import Clock
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.operators.rows.chain import Chain, Slice, TakeTimer
from penstock.runtime.input.input_gate import OpenBatch
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.feeds import Portion
from penstock.runtime.subtask.work import AppliedRows


@dataclass(slots=True)
class RunningSlice:
    """Tracks a slice inside a chain of row functions, from its first row until it has finished.

    `portion`: its rows; None if timers fire. `busy_ms`: its cost so far, without waiting for room in the outputs.
    """

    piece: Slice
    portion: Portion | None
    emitted_before: int
    busy_ms: float = 0.0


class RowWork:
    """Implements `Work` for row functions. `generation`: assigns timestamps to the chain's input, if it does."""

    holds_due_rows = False

    def __init__(
        self,
        chain: Chain,
        output: ChainOutput,
        applied: AppliedRows,
        generation: WatermarkGenerators | None,
        clock: Clock,
        slice_ms: float,
    ) -> None:
        self.chain = chain
        self.applied = applied
        self._output = output
        self._generation = generation
        self._clock = clock
        self._slice_ms = slice_ms
        self._running: RunningSlice | None = None

    @property
    def unfinished(self) -> bool:
        return self.chain.unfinished

    @property
    def resumes_firing(self) -> bool:
        timers = self.chain.timers
        return timers is not None and timers.resumes_firing

    @property
    def keyed(self) -> bool:
        return self.chain.keyed

    @property
    def late_rows(self) -> int:
        return self.chain.late_rows

    def slice_rows(self) -> int:
        return self.applied.slice_rows()

    # ---- slices -------------------------------------------------------------------------------------------------

    def start(self, portion: Portion) -> None:
        if portion.opened is None:
            started_ms = self._clock.undisturbed_ms()
            portion, piece = self._piece_of_source(portion)
            if self._generation is not None and not portion.rows:  # no row has a time
                self._generation.on_finished(portion.finished_splits)
                self.applied.add(0, None, self._clock.undisturbed_ms() - started_ms, 0, portion.left_out)
                return
        else:
            piece = self._piece_of_gate(portion.opened, portion)
        self._running = RunningSlice(piece, portion, self._output.emitted_bytes)
        self._push(lambda: self.chain.run(piece))

    def _piece_of_source(self, portion: Portion) -> tuple[Portion, Slice]:
        generation, decode = self._generation, portion.type.decode
        rows: Sequence[Any]
        stamps: Sequence[int | None] | None
        if generation is None:
            rows, stamps = decode(portion.batch), None
        else:

            def assign(batch: pa.RecordBatch) -> tuple[Sequence[Any], Sequence[int | None]]:
                rows = decode(batch)
                return rows, generation.of_rows(rows, batch)

            portion, (rows, stamps) = portion.with_times(assign)
        return portion, Slice(rows, None, None, 0, len(rows), 0.0, whole=True, timestamps=stamps)

    def _piece_of_gate(self, opened: OpenBatch, portion: Portion) -> Slice:
        now_ms = self._clock.monotonic_ms()
        keyed = self.chain.keyed and opened.edge.keyed
        if opened.timestamps is None and self._generation is not None:
            opened.timestamps = self._generation.of_rows(opened.rows, opened.batch)
        elif opened.timestamps is None and opened.edge.timestamped:
            opened.timestamps = opened.batch.column(TIMESTAMP_COLUMN).to_pylist()
        return Slice(
            opened.rows,
            opened.keys if keyed else None,
            opened.key_groups if keyed else None,
            opened.start,
            opened.start + portion.rows,
            now_ms + 2 * self._slice_ms,
            timestamps=opened.timestamps,
            input_index=portion.input_index,
        )

    def resume(self) -> None:
        if self._output.has_room():
            self._push(lambda: self.chain.resume(drain=False))

    def finish_row(self) -> bool:
        return not self.chain.unfinished or self._push(lambda: self.chain.resume(drain=True))

    def _push(self, go: Callable[[], bool]) -> bool:
        """Run or resume the slice. When it has finished, its rows count as applied.

        The time in which it waits for room is not part of its cost."""
        running = self._running
        assert running is not None
        started_ms = self._clock.undisturbed_ms()
        if not go():
            running.busy_ms += self._clock.undisturbed_ms() - started_ms
            return False
        self._running = None
        taken, piece, portion = running.piece.taken, running.piece, running.portion
        if taken and portion is not None:
            if self._generation is not None and piece.timestamps is not None:
                start, end = piece.start, piece.start + taken
                self._generation.on_rows(portion.split, lambda: piece.rows[start:end], piece.timestamps[start:end])
                self._generation.on_finished(portion.finished_splits)
            busy_ms = running.busy_ms + self._clock.undisturbed_ms() - started_ms
            emitted_bytes = self._output.emitted_bytes - running.emitted_before
            self.applied.add(taken, portion.opened, busy_ms, emitted_bytes, portion.left_out)
        return True

    # ---- timers -------------------------------------------------------------------------------------------------

    def fire_due(self) -> bool:
        timers = self.chain.timers
        if timers is None or not timers.event_due:
            return False
        self._fire(timers.take_event, event_time=True)
        return True

    def fire_processing_timers(self) -> bool:
        timers = self.chain.timers
        due_in_ms = None if timers is None else timers.processing_due_in_ms()
        if timers is None or due_in_ms is None or due_in_ms > 0:
            return False
        self._fire(timers.take_processing, event_time=False)
        return True

    def _fire(self, take: TakeTimer, event_time: bool) -> None:
        piece = Slice((), None, None, 0, 0, self._clock.monotonic_ms() + self._slice_ms)
        self._running = RunningSlice(piece, None, self._output.emitted_bytes)
        self._push(lambda: self.chain.fire(piece, take, event_time))

    # ---- rows are never held ------------------------------------------------------------------------------------

    def flush_held(self) -> None:
        """Do nothing: row functions hold no rows."""

    def next_deadline_in_ms(self) -> float | None:
        return None if self.chain.timers is None else self.chain.timers.processing_due_in_ms()

    def close(self) -> None:
        self.chain.close()
