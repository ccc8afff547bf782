"""Holds what one run of the demo leaves behind: samples of its report while it ran, and what follows from them."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.monitoring.report import CheckpointReport, DrainingReport, JobReport


@dataclass(frozen=True)
class RunPlan:
    """`options` are configuration keys. `kill_after_share`: SIGKILL a slot's process once this share of the rows has
    reached the sink."""

    name: str
    mode: str
    options: dict[str, str]
    kill_after_share: float | None = None


@dataclass
class Recording:
    """Times are seconds since `started` (monotonic); `started_wall_ms` ties them to the report's wall clock."""

    plan: RunPlan
    started: float = field(default_factory=time.monotonic)
    started_wall_ms: float = field(default_factory=lambda: time.time() * 1000)
    checkpoints: dict[int, CheckpointReport] = field(default_factory=dict)
    throughput: list[tuple[float, float]] = field(default_factory=list)
    last: JobReport | None = None
    drained: DrainingReport | None = None
    killed_wall_ms: float | None = None
    seconds: float = 0.0

    def begin(self) -> None:
        """The job runs: from now on its time counts."""
        self.started, self.started_wall_ms = time.monotonic(), time.time() * 1000

    def take(self, report: JobReport) -> None:
        self.last = report
        self.seconds = time.monotonic() - self.started
        self.drained = report.draining or self.drained
        for checkpoint in report.checkpoints:
            if checkpoint.status != "in_progress":
                self.checkpoints[checkpoint.checkpoint_id] = checkpoint
        if report.state == "RUNNING" and report.vertices:
            self.throughput.append((self.seconds, report.vertices[-1].rows_in_per_s))

    @property
    def completed(self) -> list[CheckpointReport]:
        """Return the checkpoints in the order of their ids, without those of empty channels after the end of input."""
        return [c for _, c in sorted(self.checkpoints.items()) if c.status == "completed" and c.duration_ms is not None]

    def seconds_of(self, checkpoint: CheckpointReport) -> float:
        return (checkpoint.trigger_wall_ms - self.started_wall_ms) / 1000

    @property
    def recovery_ms(self) -> float | None:
        """Return the time from the SIGKILL until every subtask runs again."""
        if self.killed_wall_ms is None or self.last is None:
            return None
        for recovery in self.last.recoveries:
            if recovery.wall_ms >= self.killed_wall_ms - 1 and recovery.running_after_ms is not None:
                return recovery.wall_ms + recovery.running_after_ms - self.killed_wall_ms
        return None

    def summary(self, rows: int, exact: bool) -> dict[str, Any]:
        """The fields of `report.json` for one run."""
        durations = [c.duration_ms for c in self.completed if c.duration_ms is not None]
        recovery_ms = self.recovery_ms
        return {
            "name": self.plan.name,
            "mode": self.plan.mode,
            "checkpoints_completed": self.last.completed if self.last else 0,
            "checkpoints_failed": self.last.failed if self.last else 0,
            "duration_ms_p50": rounded(quantile(durations, 0.5)),
            "duration_ms_p90": rounded(quantile(durations, 0.9)),
            "inflight_bytes_p50": rounded(quantile([c.inflight_bytes for c in self.completed], 0.5)),
            "restarts": self.last.restarts if self.last else 0,
            "recovery_ms": rounded(recovery_ms),
            "layers_drained": self.drained.layers if self.drained else 0,
            "draining_ms": rounded(self.drained.duration_ms) if self.drained else None,
            "rows": rows,
            "exact": exact,
            "seconds": round(self.seconds, 1),
        }


def quantile(values: list[Any], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; the middle one for 0.5."""
    if not values:
        return None
    if share == 0.5:
        return float(statistics.median(values))
    return float(sorted(values)[min(len(values) - 1, int(len(values) * share))])


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
