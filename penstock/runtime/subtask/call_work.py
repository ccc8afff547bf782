"""Runs a chain whose head calls a slow service: rows wait in a queue for their answers, and the thread never does."""

from __future__ import annotations

from typing import Callable

import numpy as np

from penstock.common.clock import Clock
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.calls.held_clock import HeldClock
from penstock.operators.rows.chain import Chain, Slice
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.feeds import Portion
from penstock.runtime.subtask.row_work import RowWork, RunningSlice
from penstock.runtime.subtask.work import AppliedRows

_ANSWERS_MAX = 4096
"""The largest number of answers that are looked at for one slice."""


class CallWork(RowWork):
    """Implements `Work` for a chain behind an `AsyncOperator`. A row counts as applied when its call has begun: from
    then on the queue holds it, and snapshots have the queue.
    """

    keyed = True
    """Rows with a key have to be of our key groups: a restore deals them out by these."""

    def __init__(
        self,
        operator: AsyncOperator,
        chain: Chain,
        output: ChainOutput,
        applied: AppliedRows,
        clock: Clock,
        slice_ms: float,
    ) -> None:
        super().__init__(chain, output, applied, None, clock, slice_ms)
        self.operator = operator
        self.event_time: HeldClock
        self._queue = operator.queue

    def now_ms(self) -> float:
        """Return the time by which calls are given up and begun again."""
        return self._clock.monotonic_ms()

    @property
    def is_full(self) -> bool:
        """Return whether no row may be taken."""
        return self._queue.is_full

    @property
    def holds_rows(self) -> bool:
        """Return whether rows or watermarks wait here."""
        return not self._queue.is_empty

    def slice_rows(self) -> int:
        return max(1, min(self.applied.slice_rows(), self._queue.capacity - self._queue.size))

    def start(self, portion: Portion) -> None:
        opened = portion.opened
        assert opened is not None, "no source is in front of calls in one chain"
        started_ms = self._clock.undisturbed_ms()
        start, end = opened.start, opened.start + portion.rows
        batch = opened.batch.slice(start, portion.rows)
        if portion.rows < opened.batch.num_rows:
            batch = batch.take(np.arange(portion.rows))  # Without this: a few rows keep the whole batch.
        timestamps = batch.column(TIMESTAMP_COLUMN).to_pylist() if opened.edge.timestamped else None
        origin = self._queue.add_batch(batch, opened.edge.name)
        self.operator.submit(origin, opened.rows[start:end], timestamps, self._clock.monotonic_ms())
        self.applied.add(portion.rows, opened, self._clock.undisturbed_ms() - started_ms, 0)

    # ---- answers ------------------------------------------------------------------------------------------------

    def look_at_answers(self) -> bool:
        """Take answers, give up calls whose time is over, begin those that are due, and emit what may leave. Returns
        whether there was anything to emit. Never waits.
        """
        operator, queue, now_ms = self.operator, self._queue, self._clock.monotonic_ms()
        operator.collect(now_ms)
        operator.expire(now_ms)
        operator.send(now_ms)
        watermark_ms = queue.pop_watermark()
        if watermark_ms is not None:
            self.event_time.catch_up(watermark_ms)
            return True
        ready = queue.ready(_ANSWERS_MAX)
        if not ready:
            return False
        times = [call.timestamp_ms for call in ready]
        answers = [call.answer for call in ready]
        piece = Slice(answers, None, None, 0, len(ready), now_ms + self._slice_ms, timestamps=times)
        self._running = RunningSlice(piece, None, self._output.emitted_bytes)
        self._ready = ready
        self._push(lambda: self.chain.run(piece))
        return True

    def _push(self, go: Callable[[], bool]) -> bool:
        running = self._running
        if not super()._push(go):
            return False
        assert running is not None
        # Rows that a slice has not taken stay in the queue.
        self._queue.remove(self._ready[: running.piece.taken])
        self._ready = []
        if self._queue.is_empty:
            self.event_time.catch_up(None)
        return True

    def restored(self, watermark_ms: int) -> None:
        """Put the time of the inputs behind the restored calls, if it is ahead of the subtask's."""
        if watermark_ms > self.event_time.time.current_ms:
            self._queue.add_watermark(watermark_ms)

    def due_in_ms(self) -> float | None:
        """Return the time until a call has to be given up or begun again, in ms; None: not before answers come."""
        due_ms = self.operator.due_ms()
        return None if due_ms is None else max(0.1, due_ms - self._clock.monotonic_ms())
