"""Runs a chain whose head reads a bounded input key by key, for `execution.runtime-mode: BATCH`.

While the input comes, its rows are held. When it has ended, the rows of a key are processed one after the other, in the
order of their event time. Then the key's timers fire, as at the end of time, and its state is forgotten, because no row
of the key comes again. A reduce without event time holds no rows: it folds them at once, and emits its results at the
end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from penstock.common.clock import Clock
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.timers import EndingTimers, Timer
from penstock.operators.rows.chain import Chain, Slice
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.keys import encode
from penstock.runtime.input.held_rows import ArrivedRows, HeldRows, KeyRows
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.feeds import Portion
from penstock.runtime.subtask.row_work import RowWork, RunningSlice
from penstock.runtime.subtask.work import AppliedRows
from penstock.state.backend import KeyedStateBackend


class BatchWork(RowWork):
    """Holds rows until the end of the input.

    Args:
        time: That of the subtask. The rows see `key_time` in its place, which begins and ends with each key.
        backend: The keyed state; None for a stream without keys whose broadcast side comes first.
        reduced: Names the state whose entries are the results; None unless the head is a reduce.
        is_timed: True if rows of the input have event time, so that a reduce has to hold them.
    """

    def __init__(
        self,
        chain: Chain,
        output: ChainOutput,
        applied: AppliedRows,
        clock: Clock,
        slice_ms: float,
        time: EventTime,
        key_time: EventTime,
        backend: KeyedStateBackend | None,
        reduced: tuple[str, str] | None,
        is_timed: bool,
    ) -> None:
        super().__init__(chain, output, applied, None, clock, slice_ms)
        self._time = time
        self._key_time = key_time
        self._backend = backend
        self._reduced = reduced
        self._folds_at_once = reduced is not None and not is_timed
        self._held: HeldRows | ArrivedRows = ArrivedRows() if backend is None else HeldRows()
        self._ending: Iterator[None] | None = None
        """The work that the end of the input makes due, a bounded piece at a time."""
        self._pauses_at_ms = 0.0

    @property
    def resumes_firing(self) -> bool:
        return False

    # ---- the input comes ----------------------------------------------------------------------------------------

    def start(self, portion: Portion) -> None:
        opened = portion.opened
        if opened is None or not self._is_held(portion):
            super().start(portion)
            return
        started_ms = self._clock.undisturbed_ms()
        self._held.add(opened.edge, opened.batch.slice(opened.start, portion.rows))
        self.applied.add(portion.rows, opened, self._clock.undisturbed_ms() - started_ms, 0)

    def _is_held(self, portion: Portion) -> bool:
        assert portion.opened is not None
        if self._backend is None:
            return portion.input_index == 0
        return portion.opened.edge.keyed and not self._folds_at_once

    # ---- the input has ended ------------------------------------------------------------------------------------

    def fire_due(self) -> bool:
        """Do one bounded piece of what the end of the input makes due. Returns False if nothing is left."""
        if self._time.current_ms < WATERMARK_MAX_MS:
            return False  # a watermark from before the end: rows see none in this mode
        if self._ending is None:
            self._ending = self._all()
        self._pauses_at_ms = self._clock.monotonic_ms() + self._slice_ms
        return next(self._ending, _OVER) is None

    def fire_processing_timers(self) -> bool:
        """Return False: timers of processing time fire at the end of their key."""
        return False

    def next_deadline_in_ms(self) -> float | None:
        """Return None: no clock makes anything due."""
        return None

    def _all(self) -> Iterator[None]:
        """Process all held rows. It is continued only when the slice that it has begun is finished."""
        key: tuple[Any, int] | None = None
        for group in self._held.groups():
            if self._backend is not None and (group.key, group.key_group) != key:
                if key is not None:
                    yield from self._end_key(key)
                key = (group.key, group.key_group)
            yield from self._rows_of(group)
        if key is not None:
            yield from self._end_key(key)
        if self._backend is not None and self._reduced is not None and self._folds_at_once:
            yield from self._results(sorted(self._backend.keys_of(*self._reduced), key=_order))

    def _rows_of(self, group: KeyRows) -> Iterator[None]:
        self._key_time.current_ms = WATERMARK_MIN_MS
        keyed, end, start = self._backend is not None, len(group.rows), 0
        keys, groups = [group.key] * end if keyed else None, [group.key_group] * end if keyed else None
        while start < end:
            piece = Slice(
                group.rows,
                keys,
                groups,
                start,
                end,
                self._pauses_at_ms,
                timestamps=group.timestamps,
                input_index=group.input_index,
            )
            self._running = RunningSlice(piece, None, self._output.emitted_bytes)
            self._push(partial(self.chain.run, piece))
            if self._pauses():
                yield
            start += piece.taken

    def _end_key(self, key: tuple[Any, int]) -> Iterator[None]:
        """Emit the result of a key, or fire its timers, and forget its state."""
        assert self._backend is not None
        self._key_time.current_ms = WATERMARK_MAX_MS
        timers = self.chain.timers
        if self._reduced is not None:
            yield from self._results([key])
        elif isinstance(timers, EndingTimers):
            # Timers of processing time may register others of event time: what is left when both have fired, is lost.
            while timers.event_due or timers.processing_due:
                while timers.event_due:
                    self._fire(timers.take_event, event_time=True)
                    if self._pauses():
                        yield
                while timers.processing_due:
                    self._fire(timers.take_processing, event_time=False)
                    if self._pauses():
                        yield
        self._backend.forget(key[1])

    def _results(self, keys: list[tuple[Any, int]]) -> Iterator[None]:
        """Emit the results of a reduce. Its operator emits one for each timer, with the timer's key."""
        assert self._backend is not None
        backend, left = self._backend, deque(keys)

        def take() -> Timer | None:
            if not left:
                return None
            key, key_group = left.popleft()
            backend.set_current_key(key, key_group)
            return Timer(WATERMARK_MAX_MS, key, key_group)

        while left:
            self._fire(take, event_time=True)
            if self._pauses():
                yield

    def _pauses(self) -> bool:
        """Return whether the slice has to be finished, room to come, or control to be heard, before anything else."""
        return self.chain.unfinished or not self._output.has_room() or self._clock.monotonic_ms() >= self._pauses_at_ms


_OVER = object()


def _order(of_key: tuple[Any, int]) -> bytes:
    return encode(of_key[0])
