"""Writes to the user's terminal: lines of the job, and below them one line of progress that is overwritten."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import threading
import time
from collections import deque
from datetime import datetime
from typing import Callable, TextIO

from penstock.monitoring.report import JobReport

LINES_MAX = 100_000
_INTERVAL_S = 0.5
_LAST_LINES_S = 10.0
_WHOLE_CHARACTERS = 1000
"""About the number of characters to write at once. A pipe takes up to 4 KB as a whole, whoever else writes to it."""


class _Screen:
    """Keeps the line of progress at the bottom of the terminal, which all jobs of a program share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._shown = ""
        self._of_jobs: dict[object, str] = {}

    def write_lines(self, stream: TextIO, lines: list[str]) -> None:
        """Write whole lines above the line of progress. Call it with the lock."""
        shown = self._shown
        self._erase()
        text = ""
        for line in lines:
            if text and len(text) + len(line) >= _WHOLE_CHARACTERS:
                _write(stream, text)
                text = ""
            text += f"{line}\n"
        _write(stream, text)
        self._show(shown)

    def show(self, job: object, text: str) -> None:
        """Replace one job's part of the progress line; "" removes it. Call it with the lock."""
        if text:
            self._of_jobs[job] = text
        elif self._of_jobs.pop(job, None) is None:
            return
        self._erase()
        self._show("  |  ".join(self._of_jobs.values()))

    def _erase(self) -> None:
        if self._shown:
            _write(sys.stderr, "\r\x1b[K")
            self._shown = ""

    def _show(self, text: str) -> None:
        if text:
            self._shown = text[: shutil.get_terminal_size().columns - 1]
            _write(sys.stderr, self._shown)


_screen = _Screen()


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed pipe must not end the job
        stream.write(text)
        stream.flush()


class Terminal:
    """Writes lines from any thread. If `sys.stderr` is no terminal, there is no progress line, and lines about the job
    of `job_name` begin with the time, their level and that name, as in a log.
    """

    def __init__(self, job_name: str = "") -> None:
        self._job_name = job_name
        self.began_s = time.monotonic()
        """The time at which the program began to start the job."""

    @property
    def is_interactive(self) -> bool:
        return sys.stderr.isatty()

    def print_lines(self, lines: list[str], is_error: bool = False) -> None:
        with _screen.lock:
            _screen.write_lines(sys.stderr if is_error else sys.stdout, lines)

    def tell(self, text: str, level: str = "INFO") -> None:
        """Write a line about the job itself; a line for each one in `text`."""
        self.print_lines(self.told(text, level), is_error=True)

    def told(self, text: str, level: str) -> list[str]:
        """Return the lines that `tell` writes. A traceback is the user's, and is shown as the program would show it."""
        user, text = text.rpartition("\n")[::2] if text.startswith("Traceback") else ("", text)
        before = "" if self.is_interactive or not self._job_name else f"{_now()} {level} [{self._job_name}] "
        lines = [before + line for line in user.splitlines()] if user else []
        first, *others = text.split("\n")
        return [*lines, f"{before}penstock: {first}", *(before + line for line in others)]

    def show(self, text: str) -> None:
        """Replace the line of progress of this job; "" removes it."""
        if self.is_interactive:
            with _screen.lock:
                _screen.show(self, text)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


class TerminalConsole:
    """Implements `penstock.jobmaster.console.Console`. A thread of its own writes, so that a slow terminal holds up
    neither the JobMaster nor the job; what it falls behind by more than `LINES_MAX` is dropped, and counted.

    Lines come from slots with their subtask's number already: a slot knows which ones have it from the print sink.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._changed = threading.Condition()
        self._lines: deque[tuple[str, bool]] = deque()
        self._dropped = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-print", daemon=True)
        self._thread.start()

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        self._put(text, is_error)

    def warning(self, text: str) -> None:
        self._put("\n".join(self._terminal.told(text, "WARN")), True)

    def stop(self) -> None:
        """Write the remaining lines (for some seconds at most)."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(_LAST_LINES_S)

    def _put(self, text: str, is_error: bool) -> None:
        with self._changed:
            if len(self._lines) < LINES_MAX:
                self._lines.append((text, is_error))
            else:
                self._dropped += 1
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._stopped)
                if not self._lines:
                    return
                lines, self._lines = self._lines, deque()
                dropped, self._dropped = self._dropped, 0
            for is_error, group in itertools.groupby(lines, key=lambda line: line[1]):
                self._terminal.print_lines([text for text, _ in group], is_error)
            if dropped:
                self._terminal.tell(f"{dropped} lines were dropped: they came faster than they could be written")


class Progress:
    """Shows the essence of a report twice a second, from a thread of its own, until `stop`. `may_show`: nobody types at
    a prompt just there.
    """

    def __init__(
        self, terminal: Terminal, report: Callable[[], JobReport | None], may_show: Callable[[], bool] = lambda: True
    ) -> None:
        self._terminal = terminal
        self._report = report
        self._may_show = may_show
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)

    def start(self) -> None:
        if self._terminal.is_interactive:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        self._terminal.show("")

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            report = self._report() if self._may_show() else None
            self._terminal.show("" if report is None else progress_line(report, time.time() * 1000))


def progress_line(report: JobReport, now_wall_ms: float) -> str:
    """Return `[job] RUNNING 12,345 rows/s checkpoint 17: 12 ms, 0.4 s ago`."""
    parts = [f"[{report.job_name}] {report.state}"]
    if report.slots_registered < report.slots_needed:
        parts.append(f"{report.slots_registered} of {report.slots_needed} slots")
    if report.draining is not None and not report.draining.is_over:
        parts.append(str(report.draining))
    rows_per_s = max((max(v.rows_in_per_s, v.rows_out_per_s) for v in report.vertices), default=0.0)
    parts.append(f"{rows_per_s:,.0f} rows/s")
    completed = [c for c in report.checkpoints if c.status == "completed"]
    if completed:
        newest = completed[-1]
        kind = "unaligned" if newest.unaligned else "aligned"
        duration = "" if newest.duration_ms is None else f" {newest.duration_ms:,.0f} ms"
        age_s = max(0.0, (now_wall_ms - newest.trigger_wall_ms) / 1000)
        parts.append(f"checkpoint {newest.checkpoint_id}: {kind}{duration}, {age_s:.0f} s ago")
    if report.failed:
        parts.append(f"{report.failed} failed")
    if report.restarts:
        parts.append(f"{report.restarts} restarts")
    return "  ".join(parts)
