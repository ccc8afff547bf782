"""The terminal while a run is under way: rows and load per vertex, and each checkpoint as it completes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.monitoring.report import CheckpointReport, JobReport
from recording import Recording

CHECKPOINTS_SHOWN = 8
LINE_EVERY_S = 10.0
BAR_CELLS = 12


def human_bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def human_ms(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"


def bar(share: float, colour: str) -> Text:
    filled = round(max(0.0, min(1.0, share)) * BAR_CELLS)
    return Text("█" * filled, style=colour) + Text("░" * (BAR_CELLS - filled), style="dim") + f" {share:>4.0%}"


def vertices_table(report: JobReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("vertex", min_width=34)
    for name in ("in/s", "out/s"):
        table.add_column(name, justify="right", min_width=8)
    table.add_column("busy")
    table.add_column("backpressured")
    for vertex in report.vertices:
        table.add_row(
            f"{vertex.name} ×{vertex.parallelism}",
            f"{vertex.rows_in_per_s:,.0f}",
            f"{vertex.rows_out_per_s:,.0f}",
            bar(vertex.busy_share, "green"),
            bar(vertex.backpressured_share, "red"),
        )
    return table


def checkpoint_line(checkpoint: CheckpointReport) -> Text:
    if checkpoint.status != "completed":
        return Text(f"checkpoint {checkpoint.checkpoint_id:>4}  {checkpoint.status}: {checkpoint.failure}", style="red")
    kind = "unaligned" if checkpoint.unaligned else "aligned"
    return Text.assemble(
        (f"checkpoint {checkpoint.checkpoint_id:>4}  ", "dim"),
        (f"{human_ms(checkpoint.duration_ms):>9}  ", "bold"),
        (f"{kind:<10}", "cyan" if checkpoint.unaligned else "yellow"),
        f"state {human_bytes(checkpoint.state_bytes):>9}   in flight {human_bytes(checkpoint.inflight_bytes):>9}",
    )


class LiveView:
    """A context manager around one run. Without a terminal it prints two lines every few seconds instead, and those of
    checkpoints that fail.
    """

    def __init__(self, console: Console, recording: Recording, rows: int) -> None:
        self._console = console
        self._recording = recording
        self._rows = rows
        self._announced: set[int] = set()
        self._line_due = 0.0
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        plan = self._recording.plan
        self._console.rule(f"[bold]{plan.name}[/]  [dim]{plan.mode}[/]", align="left")
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(text)

    def show(self, report: JobReport) -> None:
        if self._live:
            self._live.update(self._picture(report))
        else:
            self._print_news(report)

    def _headline(self, report: JobReport) -> Text:
        done = report.vertices[-1].rows_in if report.vertices else 0
        share = min(1.0, done / self._rows) if self._rows else 0.0
        drain = report.draining
        slots = f"slots {report.slots_registered}/{report.slots_needed}"
        return Text.assemble(
            (f"{report.state.lower():<11}", "bold"),
            f"{self._recording.seconds:5.1f} s  {slots}  restarts {report.restarts}  ",
            (f"{drain}  " if drain is not None and not drain.is_over else "", "yellow"),
            bar(share, "blue"),
            f"  checkpoints {report.completed}",
            (f", {report.failed} failed" if report.failed else "", "red"),
        )

    def _picture(self, report: JobReport) -> Group:
        newest = [c for _, c in sorted(self._recording.checkpoints.items())][-CHECKPOINTS_SHOWN:]
        lines = [checkpoint_line(c) for c in newest]
        return Group(self._headline(report), vertices_table(report), *lines)

    def _print_news(self, report: JobReport) -> None:
        news = [c for number, c in sorted(self._recording.checkpoints.items()) if number not in self._announced]
        is_due = time.monotonic() >= self._line_due
        for checkpoint in news:
            if checkpoint.status != "completed" or (is_due and checkpoint is news[-1]):
                self._console.print(checkpoint_line(checkpoint))
        self._announced.update(checkpoint.checkpoint_id for checkpoint in news)
        if is_due:
            self._line_due = time.monotonic() + LINE_EVERY_S
            self._console.print(self._headline(report))
