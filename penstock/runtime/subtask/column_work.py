"""Runs slices through a chain of columnar operators, each slice whole."""

from __future__ import annotations

from functools import partial
from typing import Iterator

from penstock.common.clock import Clock
from penstock.operators.batches import with_timestamps
from penstock.operators.columns.columnar_chain import ColumnarChain, Output
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.feeds import Portion
from penstock.runtime.subtask.work import AppliedRows


class ColumnWork:
    """Implements `Work` for columnar operators, and for a bare source, a bare sink, or both.

    `generation`: assigns timestamps to the chain's input, if it does."""

    unfinished = False
    resumes_firing = False

    def __init__(
        self,
        chain: ColumnarChain,
        output: ChainOutput,
        applied: AppliedRows,
        generation: WatermarkGenerators | None,
        time: EventTime,
        clock: Clock,
    ) -> None:
        self.chain = chain
        self.applied = applied
        self._output = output
        self._generation = generation
        self._time = time
        self._clock = clock
        self._firing: Iterator[Output] | None = None

    @property
    def keyed(self) -> bool:
        return self.chain.keyed

    @property
    def late_rows(self) -> int:
        return self.chain.late_rows

    def slice_rows(self) -> int:
        """Return the size of the next slice: what a user's batch still lacks, else what the budget says."""
        return self.chain.slice_rows(self.applied.slice_rows())

    def start(self, portion: Portion) -> None:
        started_ms = self._clock.undisturbed_ms() if portion.started_ms is None else portion.started_ms
        opened, generation, before = portion.opened, self._generation, self._output.emitted_bytes
        batch = portion.batch if opened is None else opened.batch.slice(opened.start, portion.rows)
        rows, stamps = portion.rows, None
        if generation is not None:
            if opened is None:
                portion, stamps = portion.with_times(generation.of_batch)
                batch, rows = portion.batch, portion.rows
                if not rows:  # no row has a time
                    generation.on_finished(portion.finished_splits)
                    self.applied.add(0, None, self._clock.undisturbed_ms() - started_ms, 0, portion.left_out)
                    return
            else:
                stamps = generation.of_batch(batch)
            batch = with_timestamps(batch.select(list(range(len(portion.type.schema)))), stamps)
        decode, batches = partial(portion.type.decode, batch), self.chain.run(batch)
        for tag, batch in batches:
            self._output.emit(batch, None, tag)
        if generation is not None:
            generation.on_rows(portion.split, decode, stamps)
            generation.on_finished(portion.finished_splits)
        busy_ms = self._clock.undisturbed_ms() - started_ms
        emitted_bytes = self._output.emitted_bytes - before
        self.applied.add(rows, opened, busy_ms, emitted_bytes, portion.left_out)

    def resume(self) -> None:
        """Do nothing: no slice is ever left in the middle."""

    def finish_row(self) -> bool:
        self.flush_held()
        return True

    def fire_due(self) -> bool:
        if self._firing is None:
            self._firing = self.chain.on_watermark(self._time.current_ms)
        output = next(self._firing, None)
        if output is None:
            self._firing = None
            return False
        tag, batch = output
        self._output.emit(batch, None, tag)
        return True

    def fire_processing_timers(self) -> bool:
        """Return False: columnar operators have windows instead of timers."""
        return False

    def flush_held(self) -> None:
        if self.chain.holds:
            for tag, batch in self.chain.flush_held():
                self._output.emit(batch, None, tag)

    @property
    def holds_due_rows(self) -> bool:
        return self.chain.due_in_ms == 0

    def next_deadline_in_ms(self) -> float | None:
        return self.chain.due_in_ms

    def close(self) -> None:
        self.chain.close()
