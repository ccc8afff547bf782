"""Provides the parts of a subtask's snapshot besides its channels: state, splits, prepared commits, time."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.calls.stored_calls import calls_part
from penstock.operators.checkpointed_parts import CheckpointedParts
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.operators.user_metrics import UserMetrics
from penstock.protocol.values.metadata import Committable, OperatorPart
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.subtask.call_work import CallWork
from penstock.runtime.subtask.feeds import GateFeed, SourceFeed
from penstock.runtime.subtask.work import Work
from penstock.state.backend import StateBackend, StateSnapshot


@dataclass(frozen=True)
class SnapshotSource:
    """Reads the parts of one subtask, in its thread, between two rows."""

    feed: SourceFeed | GateFeed
    work: Work
    output: ChainOutput
    event_time: SubtaskClock
    backend: StateBackend | None
    checkpointed: CheckpointedParts
    user_metrics: UserMetrics

    def finish_row(self) -> bool:
        """Emit the rest of the row that the chain is in the middle of. False: the overdraft is used up, try later."""
        # 7.1: a snapshot lies between two input rows.
        if not self.work.finish_row():
            return False
        for partition in self.output.partitions:
            partition.flush_held()
        return True

    def prepare_commit(self, checkpoint_id: int, is_stop: bool) -> list[Committable]:
        """Return the committables of the sink's writer that nobody has committed yet."""
        return self.output.prepare_commit(checkpoint_id, is_stop)

    def operator_parts(self, checkpoint_id: int) -> list[OperatorPart]:
        """Return the state of the reader, the writer and the watermark generators, operator state, and calls."""
        parts = [*self.checkpointed.snapshot(checkpoint_id), *self.feed.parts(), *self.output.parts()]
        if (generation := self.event_time.generation) is not None:
            parts.append(OperatorPart(generation.operator.uid, "watermarks", generation.snapshot()))
        if isinstance(self.work, CallWork):
            # 7.4: answers that have come are part of the snapshot, also those that nobody has looked at.
            self.work.operator.collect(self.work.now_ms())
            if (calls := calls_part(self.work.operator)) is not None:
                parts.append(calls)
        return parts

    def state_snapshot(self, checkpoint_id: int, predecessor_id: int | None) -> StateSnapshot | None:
        """Return a snapshot of the keyed state; None without any."""
        return None if self.backend is None else self.backend.snapshot(checkpoint_id, predecessor_id)

    def backend_metrics(self) -> dict[str, int]:
        """Return the figures of the state backend's own. Called from any thread."""
        return {} if self.backend is None else self.backend.metrics()

    def metrics(self) -> dict[str, int | float | str]:
        """Return the figures of the state backend, and those of user functions. Called from any thread."""
        return {**self.backend_metrics(), **self.user_metrics.values()}

    def revoke(self) -> None:
        """End the generation: every handle of state raises from now on."""
        self.checkpointed.revoke()
        if self.backend is not None:
            self.backend.revoke()

    @property
    def finished(self) -> bool:
        """Return True at the end of data, reached now or before the snapshot that the subtask was restored from."""
        return self.output.is_finished or self.feed.was_finished
