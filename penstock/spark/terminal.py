"""Writes to the user's terminal: lines of the job, and below them one line of progress that is overwritten."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import threading
import time
from collections import deque
from typing import Callable, TextIO

from penstock.monitoring.report import JobReport

LINES_MAX = 100_000
_INTERVAL_S = 0.5
_LAST_LINES_S = 10.0


class Terminal:
    """Writes lines from any thread. If `sys.stderr` is no terminal, there is no progress line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = ""

    @property
    def is_interactive(self) -> bool:
        return sys.stderr.isatty()

    def print_lines(self, lines: list[str], is_error: bool = False) -> None:
        stream = sys.stderr if is_error else sys.stdout
        with self._lock:
            shown = self._shown
            self._erase()
            self._write(stream, "\n".join(lines) + "\n")
            self._show(shown)

    def tell(self, text: str) -> None:
        """Write a line about the job itself."""
        self.print_lines([f"penstock: {text}"], is_error=True)

    def show(self, text: str) -> None:
        """Replace the line of progress; "" removes it."""
        if self.is_interactive:
            with self._lock:
                self._erase()
                self._show(text)

    def _erase(self) -> None:
        if self._shown:
            self._write(sys.stderr, "\r\x1b[K")
            self._shown = ""

    def _show(self, text: str) -> None:
        if text:
            self._shown = text[: shutil.get_terminal_size().columns - 1]
            self._write(sys.stderr, self._shown)

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not end the job
            stream.write(text)
            stream.flush()


class TerminalConsole:
    """Implements `penstock.runtime.console.Console`. A thread of its own writes, so that a slow terminal holds up
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
        """Write a warning. A traceback is the user's, and is shown as the program itself would show it."""
        if text.startswith("Traceback"):
            shown, _, text = text.rpartition("\n")
            self._put(shown, True)
        self._put(f"penstock: {text}", True)

    def stop(self) -> None:
        """Write what is left (for some seconds at most)."""
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
    """Shows the essence of a report twice a second, from a thread of its own, until `stop`."""

    def __init__(self, terminal: Terminal, report: Callable[[], JobReport | None]) -> None:
        self._terminal = terminal
        self._report = report
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
            report = self._report()
            if report is not None:
                self._terminal.show(progress_line(report, time.time() * 1000))


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
