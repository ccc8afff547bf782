"""Puts together the report of a job: a new immutable `JobReport` for every change, and warnings of failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.graph.describe import connector_of
from penstock.graph.job_graph import JobGraph, Vertex
from penstock.jobmaster.ports import Console
from penstock.monitoring.report import (
    CheckpointReport,
    DrainingReport,
    EdgeReport,
    JobReport,
    RecoveryReport,
    RescaleReport,
    VertexReport,
)
from penstock.monitoring.subtask_figures import SubtaskCheckpoint, SubtaskReport, packed
from penstock.protocol.driver.driver_effects import FailureCause, PublishCheckpoint, Restarting
from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import SlotAck, SlotStatus, SubtaskStatus
from penstock.protocol.values.metadata import SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason


class FailedCheckpoints:
    """Prints the first failure after a checkpoint that has completed. While a store is away, many follow."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_warned = False

    def failed(self, checkpoint_id: int, reason: FailureReason, detail: str) -> None:
        """Note a failed checkpoint that does not fail the job."""
        if self._has_warned or not reason.counts:
            return
        self._has_warned = True
        self._console.warning(
            f"checkpoint {checkpoint_id} has failed, and the job runs on ({reason}): {detail} (printed once, until a "
            "checkpoint completes; the report has all)"
        )

    def completed(self) -> None:
        """Note that a checkpoint has completed."""
        self._has_warned = False


METADATA_AND_LOG_ENTRY = 2

_RECOVERIES_MAX = 100


class CheckpointHistory:
    """Remembers the newest checkpoints for reports, and counts all."""

    def __init__(self, newest_max: int, directory: str | None) -> None:
        self._directory = directory
        self._newest_max = newest_max
        self._reports: dict[int, CheckpointReport] = {}
        self._triggered_ms: dict[int, float] = {}
        self._heard: dict[int, set[int]] = {}
        """The slots that have acknowledged each pending checkpoint."""
        self.completed = 0
        self.failed = 0

    @property
    def reports(self) -> tuple[CheckpointReport, ...]:
        return tuple(self._reports.values())

    def path(self, checkpoint_id: int) -> str | None:
        return None if self._directory is None else f"{self._directory}/chk-{checkpoint_id}"

    def triggered(
        self,
        checkpoint_id: int,
        now_ms: float,
        wall_ms: int,
        unaligned: bool,
        is_savepoint: bool = False,
        subtasks: int = 0,
    ) -> None:
        self._triggered_ms[checkpoint_id] = now_ms
        self._reports[checkpoint_id] = CheckpointReport(
            checkpoint_id,
            "in_progress",
            wall_ms,
            None,
            None,
            unaligned,
            0,
            0,
            0,
            0,
            None,
            is_savepoint=is_savepoint,
            subtasks_expected=subtasks,
        )
        while len(self._reports) > self._newest_max:
            del self._reports[next(iter(self._reports))]

    def trigger_wall_ms(self, checkpoint_id: int) -> int:
        report = self._reports.get(checkpoint_id)
        return 0 if report is None else report.trigger_wall_ms

    def on_ack(self, ack: SlotAck, now_ms: float) -> None:
        """Record the parts of a slot's subtasks, once."""
        report, triggered_ms = self._reports.get(ack.checkpoint_id), self._triggered_ms.get(ack.checkpoint_id)
        if report is None or triggered_ms is None:
            return  # it has ended
        heard = self._heard.setdefault(ack.checkpoint_id, set())
        if ack.slot in heard:
            return
        heard.add(ack.slot)
        parts = packed([_part(snapshot, now_ms - triggered_ms) for snapshot in ack.subtasks])
        self._reports[ack.checkpoint_id] = replace(report, acknowledged=report.acknowledged + parts)

    def acknowledged(self, publish: PublishCheckpoint) -> None:
        checkpoint_id = publish.barrier.checkpoint_id
        if checkpoint_id not in self._reports:
            return
        subtasks = [s for ack in publish.acks for s in ack.subtasks]
        named = [segment for ack in publish.acks for segment in (ack.segment, *ack.earlier) if segment is not None]
        own = frozenset[str]().union(*(ack.own for ack in publish.acks))
        segments = [segment for segment in named if segment.path in own]
        self._reports[checkpoint_id] = replace(
            self._reports[checkpoint_id],
            duration_ms=publish.duration_ms,
            unaligned=any(s.unaligned for s in subtasks),
            state_bytes=sum(s.state_bytes for s in subtasks),
            inflight_bytes=sum(s.persisted_bytes for s in subtasks),
            written_bytes=sum(s.length_bytes for s in segments),
            objects_written=len(segments),
            sync_ms_max=max((s.sync_ms for s in subtasks), default=0.0),
        )

    def published(self, checkpoint: NewCheckpoint, now_ms: float) -> None:
        checkpoint_id = checkpoint.metadata.checkpoint_id
        triggered_ms = self._triggered_ms.pop(checkpoint_id, now_ms)
        self._heard.pop(checkpoint_id, None)
        if checkpoint.metadata.savepoint is not None:
            return
        self.completed += 1
        if checkpoint_id in self._reports:
            report = self._reports[checkpoint_id]
            self._reports[checkpoint_id] = replace(
                report,
                status="completed",
                publication_ms=now_ms - triggered_ms,
                written_bytes=report.written_bytes + len(checkpoint.data),
                objects_written=report.objects_written + METADATA_AND_LOG_ENTRY,
                path=self.path(checkpoint_id),
            )

    def saved(self, checkpoint_id: int, directory: str, metadata_bytes: int) -> None:
        """Record a savepoint whose metadata has been written."""
        self._triggered_ms.pop(checkpoint_id, None)
        self._heard.pop(checkpoint_id, None)
        report = self._reports.get(checkpoint_id)
        if report is not None:
            self._reports[checkpoint_id] = replace(
                report,
                status="completed",
                written_bytes=report.written_bytes + metadata_bytes,
                objects_written=report.objects_written + 1,
                path=directory,
            )

    def aborted(self, checkpoint_id: int, reason: FailureReason, detail: str) -> None:
        self.failed += 1
        self._triggered_ms.pop(checkpoint_id, None)
        self._heard.pop(checkpoint_id, None)
        if checkpoint_id in self._reports:
            failure = f"{reason}: {detail}" if detail else reason
            self._reports[checkpoint_id] = replace(self._reports[checkpoint_id], status="failed", failure=failure)

    def ended_without_entry(self, checkpoint_id: int) -> None:
        """Record a checkpoint that only collected what sinks commit at the job's end: nobody can restore it."""
        self._reports.pop(checkpoint_id, None)
        self._triggered_ms.pop(checkpoint_id, None)
        self._heard.pop(checkpoint_id, None)


def _part(snapshot: SubtaskSnapshot, acknowledged_ms: float) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(
        snapshot.vertex,
        snapshot.subtask,
        snapshot.unaligned,
        acknowledged_ms,
        snapshot.start_delay_ms,
        snapshot.alignment_ms,
        snapshot.sync_ms,
        snapshot.async_ms,
        snapshot.state_bytes,
        # In an acknowledgement, segment 0 is the one that the slot has just written.
        snapshot.persisted_bytes + sum(stored.length_bytes for stored in snapshot.keyed if stored.segment == 0),
        snapshot.persisted_bytes,
    )


class RecoveryHistory:
    """Remembers the newest recoveries for reports: when each began, why, and how long it took."""

    def __init__(self) -> None:
        self._recoveries: deque[RecoveryReport] = deque(maxlen=_RECOVERIES_MAX)
        self._failed_ms: float | None = None

    @property
    def reports(self) -> tuple[RecoveryReport, ...]:
        return tuple(self._recoveries)

    def failed(self, next_generation: int, now_ms: float, wall_ms: int, cause: FailureCause) -> None:
        """Record a failure. One while the job still recovers from the one before belongs to the same recovery's
        time.
        """
        if self._failed_ms is None:
            self._failed_ms = now_ms
        self._recoveries.append(
            RecoveryReport(next_generation, wall_ms, cause.summary, None, None, cause.traceback, cause.planned)
        )

    def running(self, generation: Generation, now_ms: float, restored_checkpoint: int | None) -> None:
        if self._failed_ms is None:
            return
        self._recoveries[-1] = replace(
            self._recoveries[-1],
            generation=generation.counter,
            running_after_ms=now_ms - self._failed_ms,
            restored_checkpoint=restored_checkpoint,
        )
        self._failed_ms = None


_RATE_UNITS = 1000
_SHARE_UNITS = 1_000_000


class _Measured(NamedTuple):
    """Holds the share of a subtask's newest status in the sums of its vertex. All are whole numbers, so that sums which
    are updated by differences stay exact. Rates are in thousandths of a row per second, shares in millionths.
    """

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    skipped: int = 0
    rows_in_rate: int = 0
    rows_out_rate: int = 0
    busy: int = 0
    backpressured: int = 0

    @classmethod
    def of(cls, status: SubtaskStatus, at_ms: float, known: _SubtaskView | None) -> _Measured:
        """Measure a status; rates are those since the status that is `known`."""
        rate_in = rate_out = 0
        if known is not None and at_ms > known.at_ms:
            units = 1000 * _RATE_UNITS / (at_ms - known.at_ms)
            rate_in = round(max(0, status.rows_in - known.measured.rows_in) * units)
            rate_out = round(max(0, status.rows_out - known.measured.rows_out) * units)
        return cls(
            status.rows_in,
            status.rows_out,
            status.late_rows,
            status.skipped_rows,
            rate_in,
            rate_out,
            round(status.busy_share * _SHARE_UNITS),
            round(status.backpressured_share * _SHARE_UNITS),
        )


class _SubtaskView(NamedTuple):
    """Holds a subtask's newest status, measured, and when it came."""

    measured: _Measured
    at_ms: float


class _VertexView:
    """Keeps the sums of a vertex. Each status changes them by its difference to the one before, so that it costs the
    same however many subtasks the vertex has."""

    def __init__(self, vertex: Vertex) -> None:
        self.name = vertex.name
        self._connectors = tuple((o.name, facts) for o in vertex.operators if (facts := connector_of(o)))
        self._operators = tuple((o.uid, o.name) for o in vertex.operators)
        self._parallelism, self._max_parallelism = vertex.parallelism, vertex.max_parallelism
        self._subtasks: dict[int, _SubtaskView] = {}
        self._lags: dict[int, int | None] = {}
        self._metrics: dict[int, dict[str, int | float | str]] = {}
        """Metrics of user functions by subtask, replaced when they change, because reports share them. Few jobs ask for
        any."""
        self._accumulators: dict[int, dict[str, int]] = {}
        """Counters of user functions by subtask. They stay when a generation has ended, which may be the job's end,
        until the next one reports."""
        self._are_old = False
        """True if those are of a generation that has ended."""
        self._reports: dict[int, SubtaskReport] = {}
        self._sums = [0] * len(_Measured._fields)
        self._report: VertexReport | None = None

    def on_subtask(self, status: SubtaskStatus, slot: int, now_ms: float) -> None:
        known = self._subtasks.get(status.subtask)
        measured = _Measured.of(status, now_ms, known)
        self._subtasks[status.subtask] = _SubtaskView(measured, now_ms)
        self._reports[status.subtask] = _subtask_report(
            status, slot, measured, 0.0 if known is None else now_ms - known.at_ms, self._reports.get(status.subtask)
        )
        self._lags[status.subtask] = status.lag_rows
        if status.metrics:
            self._metrics = self._metrics | {status.subtask: status.metrics}
        if status.accumulators or self._are_old:
            kept = {} if self._are_old else self._accumulators
            self._accumulators, self._are_old = kept | {status.subtask: status.accumulators}, False
        before = _NOTHING if known is None else known.measured
        self._sums = [total + new - old for total, new, old in zip(self._sums, measured, before)]
        self._report = None

    def on_generation_ended(self) -> None:
        """Keep the counts: counters start from 0 with each generation, but the sums continue."""
        self._subtasks.clear()
        self._reports.clear()
        self._lags.clear()
        self._metrics = {}
        self._are_old = bool(self._accumulators)
        counted = _Measured(*self._sums)
        self._sums = [counted.rows_in, counted.rows_out, counted.late, counted.skipped, 0, 0, 0, 0]
        self._report = None

    def on_rescaled(self, parallelism: int) -> None:
        self._parallelism, self._report = parallelism, None

    @property
    def sums(self) -> _Measured:
        return _Measured(*self._sums)

    def report(self) -> VertexReport:
        if self._report is None:
            sums, share_units = self.sums, _SHARE_UNITS * max(len(self._subtasks), 1)
            self._report = VertexReport(
                self.name,
                self._parallelism,
                sums.rows_in,
                sums.rows_out,
                sums.rows_in_rate / _RATE_UNITS,
                sums.rows_out_rate / _RATE_UNITS,
                sums.busy / share_units,
                sums.backpressured / share_units,
                sums.late,
                sums.skipped,
                None if None in self._lags.values() else sum(filter(None, self._lags.values())) if self._lags else None,
                self._connectors,
                self._metrics,
                dict(self._reports),
                self._max_parallelism,
                self._operators,
                self._accumulators,
            )
        return self._report


def _subtask_report(
    status: SubtaskStatus, slot: int, measured: _Measured, elapsed_ms: float, before: SubtaskReport | None
) -> SubtaskReport:
    since_ms, busy_ms, backpressured_ms = (0.0, 0.0, 0.0) if before is None else before[-3:]
    return SubtaskReport(
        slot,
        status.rows_in,
        status.rows_out,
        status.bytes_in,
        status.bytes_out,
        measured.rows_in_rate / _RATE_UNITS,
        measured.rows_out_rate / _RATE_UNITS,
        status.busy_share,
        status.backpressured_share,
        status.queued_bytes,
        status.step_ms_max,
        status.watermark_ms,
        status.lag_rows,
        since_ms + elapsed_ms,
        busy_ms + elapsed_ms * status.busy_share,
        backpressured_ms + elapsed_ms * status.backpressured_share,
    )


_NOTHING = _Measured()


class _DrainView:
    """Measures the progress of draining, from the reports of this generation's slots."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._layers_of: dict[int, int] = {}
        self._layers_sum = 0
        self._left_sum = 0
        self._began_ms: float | None = None
        self._duration_ms: float | None = None

    def on_restored(self, slot: int, layers: int) -> None:
        self._layers_sum += layers - self._layers_of.get(slot, 0)
        self._layers_of[slot] = layers
        self.on_status(slot, layers)

    def on_status(self, slot: int, layers_left: int) -> None:
        self._left_sum += layers_left - self._left.get(slot, 0)
        self._left[slot] = layers_left

    def on_draining(self, is_over: bool, now_ms: float) -> None:
        if not is_over and self._began_ms is None:
            self._began_ms = now_ms
        elif is_over and self._began_ms is not None and self._duration_ms is None:
            self._duration_ms = now_ms - self._began_ms

    def report(self) -> DrainingReport | None:
        if self._began_ms is None:
            return None
        layers = self._layers_sum
        left = 0 if self._duration_ms is not None else self._left_sum
        return DrainingReport(layers, max(0, layers - left), self._duration_ms)


class Reporter:
    """Builds the report after each event. An event's cost does not grow with the slots, except for copying two tuples
    that have an entry per slot.
    """

    def __init__(self, graph: JobGraph, job_id: str, lifecycle: Lifecycle, checkpoints: CheckpointHistory) -> None:
        self._graph = graph
        self._job_id = job_id
        self._lifecycle = lifecycle
        self.checkpoints = checkpoints
        self.recoveries = RecoveryHistory()
        self._vertices = [_VertexView(vertex) for vertex in graph.vertices]
        self._edges = tuple(
            EdgeReport(edge.source, edge.target, edge.partitioner.kind.value, edge.side_output) for edge in graph.edges
        )
        self._rss_bytes = [0] * lifecycle.roster.slots
        self.rescales: Callable[[], tuple[RescaleReport, ...]] = tuple
        self._drain = _DrainView()
        self.counter = 0
        self._has_run = False
        self._shown: tuple[Any, ...] = ()
        self._report: JobReport
        """The last one, made of `_shown`: given again where nothing has changed since."""

    def on_status(self, status: SlotStatus, now_ms: float) -> None:
        self.on_memory(status.slot, status.rss_bytes)
        if status.subtasks:
            self._drain.on_status(status.slot, sum(subtask.layers for subtask in status.subtasks))
        for subtask in status.subtasks:
            self.on_subtask(subtask, status.slot, now_ms)

    def on_rescaled(self, graph: JobGraph) -> None:
        """Note that the next generation has another parallelism."""
        for view, vertex in zip(self._vertices, graph.vertices):
            view.on_rescaled(vertex.parallelism)
        self._rss_bytes = (self._rss_bytes + [0] * graph.slots)[: graph.slots]

    def on_memory(self, slot: int, rss_bytes: int) -> None:
        if slot < len(self._rss_bytes):  # otherwise of a process that is about to leave
            self._rss_bytes[slot] = rss_bytes

    def on_subtask(self, subtask: SubtaskStatus, slot: int, now_ms: float) -> None:
        self._vertices[subtask.vertex].on_subtask(subtask, slot, now_ms)

    def on_restarting(self, restarting: Restarting, now_ms: float, wall_ms: int) -> None:
        self.recoveries.failed(self.counter + 1, now_ms, wall_ms, restarting.cause)

    def on_generation(self, counter: int) -> None:
        """Note that a generation is deployed."""
        self.counter = counter
        self._drain = _DrainView()

    def on_restored(self, slot: int, layers: int) -> None:
        self._drain.on_restored(slot, layers)

    def on_draining(self, is_over: bool, now_ms: float) -> None:
        self._drain.on_draining(is_over, now_ms)

    def rows_left_out(self) -> list[str]:
        """Return the warnings for the user at the end: a line for each vertex that left rows out."""
        lines = []
        for vertex in self._vertices:
            sums = vertex.sums
            if sums.late:
                lines.append(
                    f"'{vertex.name}': {sums.late:,} rows came after their windows had ended, and were dropped (see "
                    "allowed_lateness and side_output_late_data)"
                )
            if sums.skipped:
                lines.append(f"'{vertex.name}': {sums.skipped:,} rows could not be read, and were skipped as it says")
        return lines

    def on_generation_ended(self) -> None:
        for vertex in self._vertices:
            vertex.on_generation_ended()

    def build(self) -> JobReport:
        life, checkpoints = self._lifecycle, self.checkpoints
        self._has_run = self._has_run or life.state == "RUNNING"
        shown = (
            self._job_id,
            self._graph.name,
            life.state,
            self.counter,
            life.restarts.count,
            tuple([vertex.report() for vertex in self._vertices]),
            checkpoints.reports,
            checkpoints.completed,
            checkpoints.failed,
            self.recoveries.reports,
            life.roster.slots,
            life.roster.registered,
            tuple(self._rss_bytes),
            tuple(life.roster.pids),
            tuple([spare.pid for spare in life.roster.spares]),
            self._drain.report(),
            self.rescales(),
            self._has_run,
            self._edges,
        )
        if shown != self._shown:
            self._shown, self._report = shown, JobReport(*shown)
        return self._report
