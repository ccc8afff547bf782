"""Writes a job's log: a line for each thing that happens to it, and one now and then while nothing does.

The lines follow the job's reports, which anybody may read: so writing them holds up nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from penstock.monitoring.report import CheckpointReport, JobReport, RescaleReport
from penstock.spark.driver.terminal import Terminal

_LOOK_S = 0.2


class DriverLog:
    """Follows the reports of one job from `start` to `end`, in a thread of its own. `interval_s`: how often a line is
    written while all is well, if no terminal shows progress; 0: never. `dashboard`: returns its address; None: it has
    none.
    """

    def __init__(
        self,
        terminal: Terminal,
        report: Callable[[], JobReport],
        slots: int,
        interval_s: float,
        dashboard: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._terminal = terminal
        self._dashboard = dashboard
        self._report = report
        self._slots = slots
        self._interval_s = 0.0 if terminal.is_interactive else interval_s
        self._began_s = self._told_s = terminal.began_s
        self._has_run = False
        self._restored = 0
        """The newest generation of which a line says that the job runs again."""
        self._newest_savepoint = 0
        self._rescaled_wall_ms = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, state: str, detail: str) -> None:
        """Write the remaining lines, and the job's outcome."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)
        self._look()
        if not self._terminal.is_interactive:
            level = "ERROR" if state == "FAILED" else "INFO"
            ran_s = time.monotonic() - self._began_s
            self._terminal.tell(f"the job is {state} after {ran_s:,.1f} s{detail}", level)

    def _follow(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        report = self._report()
        for line in self._news(report):
            self._terminal.tell(line)
        now_s = time.monotonic()
        if self._interval_s and report.state == "RUNNING" and now_s - self._told_s >= self._interval_s:
            self._told_s = now_s
            self._terminal.tell(status_line(report, time.time() * 1000))

    def _news(self, report: JobReport) -> Iterator[str]:
        if not self._has_run and report.has_run:
            self._has_run, self._told_s = True, time.monotonic()
            slots = f"{self._slots} slot{'' if self._slots == 1 else 's'}"
            yield f"running with {slots} after {time.monotonic() - self._began_s:.1f} s"
            if (address := self._dashboard()) is not None:
                yield f"dashboard: {address}"
        ended = [recovery for recovery in report.recoveries if recovery.running_after_ms is not None]
        for recovery in ended:
            if recovery.generation > self._restored:
                self._restored = recovery.generation
                number = recovery.restored_checkpoint
                origin = "from the start, without a checkpoint" if number is None else f"from checkpoint {number}"
                yield f"the job runs again after {(recovery.running_after_ms or 0) / 1000:.1f} s, {origin}"
        for savepoint in report.checkpoints:
            if savepoint.is_savepoint and savepoint.checkpoint_id > self._newest_savepoint:
                if savepoint.status != "in_progress":
                    self._newest_savepoint = savepoint.checkpoint_id
                    yield _savepoint_line(savepoint)
        for rescale in report.rescales:
            if rescale.ended_wall_ms > self._rescaled_wall_ms:
                self._rescaled_wall_ms = rescale.ended_wall_ms
                yield _rescale_line(rescale)


def status_line(report: JobReport, now_wall_ms: float) -> str:
    """Return `RUNNING: 12,345 rows/s in, 40 rows/s out, 1,000 rows behind; checkpoint 17: 12 ms, 4 s ago`."""
    rows_in = sum(vertex.rows_out_per_s for vertex in report.vertices[:1])
    rows_in = max([rows_in, *(vertex.rows_in_per_s for vertex in report.vertices)])
    parts = [f"{rows_in:,.0f} rows/s"]
    lags = [vertex.lag_rows for vertex in report.vertices if vertex.lag_rows is not None]
    if lags:
        parts.append(f"{sum(lags):,} rows behind")
    if report.draining is not None and not report.draining.is_over:
        parts.append(str(report.draining))
    completed = [checkpoint for checkpoint in report.checkpoints if checkpoint.status == "completed"]
    if completed:
        newest = completed[-1]
        took = "" if newest.duration_ms is None else f" took {newest.duration_ms:,.0f} ms,"
        age_s = max(0.0, (now_wall_ms - newest.trigger_wall_ms) / 1000)
        parts.append(f"checkpoint {newest.checkpoint_id}{took} {age_s:,.0f} s ago")
    failed = f"{report.failed} failed checkpoints, " if report.failed else ""
    parts.append(f"{failed}{report.restarts} restarts")
    return f"{report.state}: {'; '.join(parts)}"


def _savepoint_line(savepoint: CheckpointReport) -> str:
    if savepoint.status == "completed":
        took = "" if savepoint.duration_ms is None else f" after {savepoint.duration_ms / 1000:.1f} s"
        return f"savepoint {savepoint.path} is complete{took}"
    return f"a savepoint was not taken: {savepoint.failure}"


def _rescale_line(rescale: RescaleReport) -> str:
    took_s = (rescale.waited_ms + rescale.checkpoint_ms + rescale.restart_ms) / 1000
    before, after = max(rescale.before, default=0), max(rescale.after, default=0)
    return f"rescaled from parallelism {before} to {after} in {took_s:.1f} s ({rescale.reason})"
