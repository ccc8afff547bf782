"""Defines the interface between a subtask's loop and its chain, of rows or of columns."""

from __future__ import annotations

from typing import Callable, Protocol

from penstock.runtime.input.input_gate import OpenBatch
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.feeds import Portion
from penstock.runtime.subtask.slice_budget import SliceBudget


class Work(Protocol):
    """Runs a chain, one bounded slice at a time. `RowWork` and `ColumnWork` implement it."""

    applied: AppliedRows

    @property
    def keyed(self) -> bool:
        """Return whether the head of the chain is keyed."""

    @property
    def unfinished(self) -> bool:
        """Return whether a slice waits for room in the outputs. Then only `resume` and `finish_row` may be called."""

    @property
    def resumes_firing(self) -> bool:
        """Return whether the snapshot that the subtask was restored from was taken while timers were firing."""

    @property
    def late_rows(self) -> int:
        """Return the number of dropped late rows."""

    def slice_rows(self) -> int:
        """Return the number of rows of the next slice, at least 1."""

    def start(self, portion: Portion) -> None:
        """Run a slice."""

    def resume(self) -> None:
        """Continue the unfinished slice as far as the outputs have room."""

    def finish_row(self) -> bool:
        """Emit everything that belongs to rows already taken, because a snapshot lies behind them.

        Returns False if the overdraft is used up; then try again when there is room."""

    def fire_due(self) -> bool:
        """Fire one bounded group of what the watermark made due. Returns False if nothing is due."""

    def fire_processing_timers(self) -> bool:
        """Fire timers of processing time. Returns False if none is due."""

    def flush_held(self) -> None:
        """Emit the results of rows held for a user's batch: before whatever follows them."""

    def next_deadline_in_ms(self) -> float | None:
        """Return the time until timers or held rows are due, in ms; None: never."""

    @property
    def holds_due_rows(self) -> bool:
        """Return whether rows have been held for a user's batch as long as they may be."""

    def close(self) -> None:
        """Close the user's functions."""


class AppliedRows:
    """Counts rows that a chain has finished with, and learns from their cost.

    Args:
        applied: Called with (open batch, rows) for rows of the input gate, which credits their producer.
    """

    def __init__(self, output: ChainOutput, slice_ms: float, applied: Callable[[OpenBatch, int], None]) -> None:
        self.rows = 0
        self.budget = SliceBudget(slice_ms)
        self._output = output
        self._applied = applied

    def slice_rows(self) -> int:
        """Return the number of rows that should finish within the target and fit into the outputs."""
        return self.budget.rows(self._output.room_bytes)

    def add(self, rows: int, opened: OpenBatch | None, busy_ms: float, output_bytes: int, left_out: int = 0) -> None:
        """Count the rows of a finished slice, which took `busy_ms` without waiting for room. `left_out`: the number of
        rows that were read besides, and have no time. Without this: slices of a source stay small where most rows are
        left out.
        """
        self.rows += rows
        self.budget.measured(rows + left_out, busy_ms, output_bytes)
        if opened is not None:
            self._applied(opened, rows)
