"""Shows a vertex: its subtasks, their times, watermarks and backpressure, and the slots that they run in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.monitoring.report import JobReport, VertexReport
from penstock.monitoring.subtask_figures import SubtaskReport
from penstock.rest.views.figures import TASK_STATES, Document, counts_of_states, over_subtasks, task_state, vertex_id
from penstock.rest.views.metric_views import backpressure_level

_TOTALS = (
    "read-bytes", "write-bytes", "read-records", "write-records", "accumulated-backpressured-time",
    "accumulated-idle-time", "accumulated-busy-time",
)  # fmt: skip


class VertexView:
    """Shows one vertex of a job. `started_wall_ms`: when its tasks began; `now_wall_ms`: the time of the answer."""

    def __init__(self, report: JobReport, number: int, started_wall_ms: int, now_wall_ms: int) -> None:
        self._report = report
        self._number = number
        self._vertex: VertexReport = report.vertices[number]
        self._started_wall_ms = started_wall_ms
        self._now_wall_ms = now_wall_ms

    @property
    def _head(self) -> Document:
        return {"id": vertex_id(self._number), "name": self._vertex.name, "now": self._now_wall_ms}

    def overview(self) -> Document:
        """Show the vertex in its job."""
        vertex, state = self._vertex, task_state(self._report.state)
        metrics = _totals(list(vertex.subtasks.values()))
        # Counts of earlier generations, too: those of the subtasks begin again with each.
        metrics |= {"read-records": vertex.rows_in, "write-records": vertex.rows_out}
        return {
            "id": vertex_id(self._number),
            "slotSharingGroupId": vertex_id(0),
            "name": vertex.name,
            "maxParallelism": vertex.max_parallelism,
            "parallelism": vertex.parallelism,
            "status": state,
            "start-time": self._started_wall_ms,
            "end-time": -1,
            "duration": self._now_wall_ms - self._started_wall_ms,
            "tasks": counts_of_states([state] * vertex.parallelism),
            "metrics": metrics,
            "connectors": [{"name": name, **facts} for name, facts in vertex.connectors],
        }

    def details(self) -> Document:
        vertex = self._vertex
        return self._head | {
            "parallelism": vertex.parallelism,
            "maxParallelism": vertex.max_parallelism,
            "operators": [{"id": uid, "name": name} for uid, name in vertex.operators],
            "subtasks": [self.subtask(subtask) for subtask in range(vertex.parallelism)],
            "aggregated": _aggregated(list(vertex.subtasks.values()), self._now_wall_ms - self._started_wall_ms),
        }

    def subtask(self, number: int) -> Document:
        """Show one subtask. Its attempt is the number of the job's generation."""
        known, duration_ms = self._vertex.subtasks.get(number), self._now_wall_ms - self._started_wall_ms
        state = task_state(self._report.state)
        return {
            "subtask": number,
            "status": state,
            "attempt": self._report.generation,
            "endpoint": self._endpoint(number),
            "start-time": self._started_wall_ms,
            "start_time": self._started_wall_ms,
            "end-time": -1,
            "duration": duration_ms,
            "metrics": _totals([] if known is None else [known]),
            "taskmanager-id": slot_id(number),
            "status-duration": _passed(state, duration_ms),
        }

    def times(self) -> Document:
        stamps = dict.fromkeys(counts_of_states([]), -1) | {task_state(self._report.state): self._started_wall_ms}
        subtasks = [
            {
                "subtask": number,
                "endpoint": self._endpoint(number),
                "duration": self._now_wall_ms - self._started_wall_ms,
                "timestamps": stamps,
            }
            for number in range(self._vertex.parallelism)
        ]
        return self._head | {"subtasks": subtasks}

    def slots(self) -> Document:
        """Show the slots of the vertex, which Flink calls task managers."""
        duration_ms, state = self._now_wall_ms - self._started_wall_ms, task_state(self._report.state)
        return self._head | {
            "taskmanagers": [
                {
                    "endpoint": self._endpoint(number),
                    "status": state,
                    "start-time": self._started_wall_ms,
                    "end-time": -1,
                    "duration": duration_ms,
                    "metrics": _totals([known] if (known := self._vertex.subtasks.get(number)) else []),
                    "status-counts": counts_of_states([state]),
                    "taskmanager-id": slot_id(number),
                    "aggregated": _aggregated([known] if known else [], duration_ms),
                }
                for number in range(self._vertex.parallelism)
            ]
        }

    def backpressure(self) -> Document:
        subtasks = []
        for number, known in sorted(self._vertex.subtasks.items()):
            level = backpressure_level(known.backpressured_share)
            subtasks.append(
                {
                    "subtask": number,
                    "attempt-number": self._report.generation,
                    "backpressureLevel": level,
                    "backpressure-level": level,
                    "ratio": known.backpressured_share,
                    "idleRatio": known.idle_share,
                    "busyRatio": known.busy_share,
                }
            )
        worst = max((known.backpressured_share for known in self._vertex.subtasks.values()), default=0.0)
        level = backpressure_level(worst)
        return {
            "status": "ok",
            "backpressureLevel": level,
            "backpressure-level": level,
            "end-timestamp": self._now_wall_ms,
            "subtasks": subtasks,
        }

    def watermarks(self) -> list[dict[str, str]]:
        return [
            {"id": f"{number}.currentOutputWatermark", "value": str(known.watermark_ms)}
            for number, known in sorted(self._vertex.subtasks.items())
            if known.watermark_ms is not None
        ]

    def accumulators(self) -> Document:
        """Show the counters of user functions, added up over the vertex."""
        total: Counter[str] = Counter()
        for counts in self._vertex.accumulators.values():
            total.update(counts)
        return {"id": vertex_id(self._number), "user-accumulators": accumulators_listed(total)}

    def accumulators_by_subtask(self) -> Document:
        subtasks = [
            {
                "subtask": number,
                "attempt": self._report.generation,
                "endpoint": self._endpoint(number),
                "user-accumulators": accumulators_listed(self._vertex.accumulators.get(number, {})),
            }
            for number in range(self._vertex.parallelism)
        ]
        return {"id": vertex_id(self._number), "parallelism": self._vertex.parallelism, "subtasks": subtasks}

    def _endpoint(self, slot: int) -> str:
        pids = self._report.slot_pids
        pid = pids[slot] if slot < len(pids) else None
        return f"slot {slot}" if pid is None else f"slot {slot}, process {pid}"


def accumulators_listed(counts: Mapping[str, int]) -> list[dict[str, str]]:
    return [{"name": name, "type": "LongCounter", "value": str(count)} for name, count in sorted(counts.items())]


def _passed(state: str, duration_ms: int) -> dict[str, int]:
    """Return the time in each state that a task passes through: only the newest is known here."""
    return dict.fromkeys(TASK_STATES[: TASK_STATES.index("RUNNING") + 1], 0) | {state: duration_ms}


def slot_id(slot: int) -> str:
    return f"slot-{slot}"


def _totals(subtasks: list[SubtaskReport]) -> dict[str, Any]:
    figures = _figures(subtasks)
    shown: dict[str, Any] = {}
    for name in _TOTALS[:4]:
        shown |= {name: round(sum(figures[name])), f"{name}-complete": bool(subtasks)}
    return shown | {name: round(sum(figures[name])) for name in _TOTALS[4:]}


def _aggregated(subtasks: list[SubtaskReport], duration_ms: int) -> Document:
    figures = _figures(subtasks)
    return {
        "metrics": {name: over_subtasks(values) for name, values in figures.items()},
        "status-duration": {
            state: over_subtasks([in_state_ms] * len(subtasks))
            for state, in_state_ms in _passed("RUNNING", duration_ms).items()
        },
    }


def _figures(subtasks: list[SubtaskReport]) -> dict[str, list[float]]:
    return {
        "read-bytes": [s.bytes_in for s in subtasks],
        "write-bytes": [s.bytes_out for s in subtasks],
        "read-records": [s.rows_in for s in subtasks],
        "write-records": [s.rows_out for s in subtasks],
        "accumulated-backpressured-time": [s.backpressured_ms for s in subtasks],
        "accumulated-idle-time": [max(0.0, s.since_ms - s.busy_ms - s.backpressured_ms) for s in subtasks],
        "accumulated-busy-time": [s.busy_ms for s in subtasks],
    }
