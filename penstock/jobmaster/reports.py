"""Puts together what can be seen of a job: a new immutable `JobReport` for every change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.history import CheckpointHistory, RecoveryHistory
from penstock.monitoring.report import DrainingReport, JobReport, VertexReport
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.values.messages import SlotStatus, SubtaskStatus


@dataclass
class _SubtaskView:
    """The newest status of a subtask, and its rates since the one before."""

    status: SubtaskStatus
    at_ms: float
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0


@dataclass(frozen=True)
class _Rows:
    """Of a vertex, since the job started."""

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    skipped: int = 0

    def plus(self, status: SubtaskStatus) -> _Rows:
        return _Rows(
            self.rows_in + status.rows_in,
            self.rows_out + status.rows_out,
            self.late + status.late_rows,
            self.skipped + status.skipped_rows,
        )


class _DrainView:
    """How far draining is, from what slots have said of this generation."""

    def __init__(self) -> None:
        self._layers: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._began_ms: float | None = None
        self._duration_ms: float | None = None

    def on_restored(self, slot: int, layers: int) -> None:
        self._layers[slot] = self._left[slot] = layers

    def on_status(self, slot: int, layers_left: int) -> None:
        self._left[slot] = layers_left

    def on_draining(self, is_over: bool, now_ms: float) -> None:
        if not is_over and self._began_ms is None:
            self._began_ms = now_ms
        elif is_over and self._began_ms is not None and self._duration_ms is None:
            self._duration_ms = now_ms - self._began_ms

    def report(self) -> DrainingReport | None:
        if self._began_ms is None:
            return None
        layers = sum(self._layers.values())
        left = 0 if self._duration_ms is not None else sum(self._left.values())
        return DrainingReport(layers, max(0, layers - left), self._duration_ms)


class Reporter:
    def __init__(self, graph: JobGraph, job_id: str, lifecycle: Lifecycle, checkpoints: CheckpointHistory) -> None:
        self._graph = graph
        self._job_id = job_id
        self._lifecycle = lifecycle
        self._checkpoints = checkpoints
        self.recoveries = RecoveryHistory()
        self._subtasks: dict[int, dict[int, _SubtaskView]] = {}
        """By vertex and subtask."""
        self._vertices: dict[int, VertexReport] = {}
        """Of those of which nothing has been heard since the last report."""
        self._all_vertices: tuple[VertexReport, ...] | None = None
        """None where anything has been heard since."""
        self._rows_before: dict[int, _Rows] = {}
        self._rss_bytes: dict[int, int] = {}
        self._drain = _DrainView()
        self.counter = 0
        self._shown: tuple[Any, ...] = ()
        self._report: JobReport
        """The last one, made of `_shown`: given again where nothing has changed since."""

    def on_status(self, status: SlotStatus, now_ms: float) -> None:
        self._rss_bytes[status.slot] = status.rss_bytes
        if status.subtasks:
            self._drain.on_status(status.slot, sum(subtask.layers for subtask in status.subtasks))
        for subtask in status.subtasks:
            self.on_subtask(subtask, now_ms)

    def on_subtask(self, subtask: SubtaskStatus, now_ms: float) -> None:
        views = self._subtasks.setdefault(subtask.vertex, {})
        view = _SubtaskView(subtask, now_ms)
        known = views.get(subtask.subtask)
        elapsed_s = 0.0 if known is None else (now_ms - known.at_ms) / 1000
        if known is not None and elapsed_s > 0:
            view.rows_in_per_s = max(0, subtask.rows_in - known.status.rows_in) / elapsed_s
            view.rows_out_per_s = max(0, subtask.rows_out - known.status.rows_out) / elapsed_s
        views[subtask.subtask] = view
        self._vertices.pop(subtask.vertex, None)
        self._all_vertices = None

    def on_generation(self, counter: int) -> None:
        """It is deployed."""
        self.counter = counter
        self._drain = _DrainView()

    def on_restored(self, slot: int, layers: int) -> None:
        self._drain.on_restored(slot, layers)

    def on_draining(self, is_over: bool, now_ms: float) -> None:
        self._drain.on_draining(is_over, now_ms)

    def rows_left_out(self) -> list[str]:
        """What the user should know at the end: a line for each vertex that left rows out."""
        lines = []
        for vertex in self._graph.vertices:
            rows = self._rows(vertex.index)
            if rows.late:
                lines.append(
                    f"'{vertex.name}': {rows.late:,} rows came after their windows had ended, and were dropped (see "
                    "allowed_lateness and side_output_late_data)"
                )
            if rows.skipped:
                lines.append(f"'{vertex.name}': {rows.skipped:,} rows could not be read, and were skipped as it says")
        return lines

    def on_generation_ended(self) -> None:
        """Counters start from 0 with each generation; what was counted stays in the sums."""
        for vertex in self._graph.vertices:
            self._rows_before[vertex.index] = self._rows(vertex.index)
        self._subtasks.clear()
        self._vertices.clear()
        self._all_vertices = None

    def _rows(self, vertex: int) -> _Rows:
        rows = self._rows_before.get(vertex, _Rows())
        for view in self._of(vertex):
            rows = rows.plus(view.status)
        return rows

    def _of(self, vertex: int) -> list[_SubtaskView]:
        return list(self._subtasks.get(vertex, {}).values())

    def build(self) -> JobReport:
        life, checkpoints = self._lifecycle, self._checkpoints
        if self._all_vertices is None:
            self._all_vertices = tuple(self._vertex(v.index) for v in self._graph.vertices)
        slots = range(life.settings.slots)
        members = [life.roster.member(slot) for slot in slots]
        shown = (
            self._job_id,
            self._graph.name,
            life.state,
            self.counter,
            life.restarts,
            self._all_vertices,
            checkpoints.reports,
            checkpoints.completed,
            checkpoints.failed,
            self.recoveries.reports,
            life.settings.slots,
            life.roster.registered,
            tuple([self._rss_bytes.get(slot, 0) for slot in slots]),
            tuple([None if m is None else m.pid for m in members]),
            checkpoints.latest_path,
            tuple([spare.pid for spare in life.roster.spares]),
            self._drain.report(),
        )
        if shown != self._shown:
            self._shown, self._report = shown, JobReport(*shown)
        return self._report

    def _vertex(self, index: int) -> VertexReport:
        report = self._vertices.get(index)
        if report is None:
            report = self._vertices[index] = self._summed_up(index)
        return report

    def _summed_up(self, index: int) -> VertexReport:
        vertex = self._graph.vertices[index]
        rows = self._rows(index)
        views = self._of(index)
        count = max(len(views), 1)
        return VertexReport(
            vertex.name,
            vertex.parallelism,
            rows.rows_in,
            rows.rows_out,
            sum(v.rows_in_per_s for v in views),
            sum(v.rows_out_per_s for v in views),
            sum(v.status.busy_share for v in views) / count,
            sum(v.status.backpressured_share for v in views) / count,
            rows.late,
            rows.skipped,
        )
