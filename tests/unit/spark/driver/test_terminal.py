"""Prints lines and progress to terminals that are slow, closed or none: the job must never wait for them."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import pytest

from penstock.monitoring.report import CheckpointReport, DrainingReport, JobReport, VertexReport
from penstock.runtime.process.context import set_current
from penstock.spark.driver.terminal import LINES_MAX, Progress, Terminal, TerminalConsole, progress_line
from penstock.spark.process.printed_stream import PrintedStream


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_printed_above_the_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    terminal = Terminal()
    terminal.show("running")
    terminal.print_lines(["1> a", "1> b"])
    terminal.show("")
    assert screen.getvalue() == "running\r\x1b[K1> a\n1> b\nrunning\r\x1b[K"


def test_without_a_terminal_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    terminal = Terminal()
    terminal.show("running")
    terminal.tell("2 of 2 slots registered")
    assert stream.getvalue() == "penstock: 2 of 2 slots registered\n"


def test_a_closed_pipe_does_not_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    Terminal().print_lines(["lost"])


class SlowScreen(io.StringIO):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.begun.set()
        assert self.go_on.wait(20)
        return super().write(text)


def test_a_slow_terminal_holds_up_nobody_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = SlowScreen(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    console = TerminalConsole(Terminal())
    console.line(0, "first", False)
    assert out.begun.wait(20)
    for number in range(LINES_MAX + 3):
        console.line(0, str(number), False)
    out.go_on.set()
    console.warning("dropped, too")
    console.stop()
    assert out.getvalue().split("\n")[:-1] == ["first", *map(str, range(LINES_MAX))]
    assert err.getvalue().splitlines()[-1] in (
        "penstock: 4 lines were dropped: they came faster than they could be written",
        "penstock: 3 lines were dropped: they came faster than they could be written",
    )


def test_lines_and_warnings_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    console = TerminalConsole(Terminal())
    console.line(0, "1> a", False)
    console.warning("restarts")
    console.line(1, "2> b", True)
    console.warning("Traceback (most recent call last):\n  the user's\nFailure 1")
    console.stop()
    traced = "Traceback (most recent call last):\n  the user's\npenstock: Failure 1\n"
    assert screen.getvalue() == f"1> a\npenstock: restarts\n2> b\n{traced}"


def test_the_line_of_progress() -> None:
    checkpoint = CheckpointReport(17, "completed", 10_000, 12.4, 15.0, True, 0, 0, 0, 0, None)
    open_one = CheckpointReport(18, "in_progress", 11_000, None, None, True, 0, 0, 0, 0, None)
    vertices = (VertexReport("source", 2, 0, 5, 0.0, 12345.6, 0.0, 0.0), VertexReport("sink", 2, 5, 0, 7, 0, 0, 0))
    report = JobReport("id", "job", "RUNNING", 1, 2, vertices, (checkpoint, open_one), 17, 1, (), 2, 2)
    line = "[job] RUNNING  12,346 rows/s  checkpoint 17: unaligned 12 ms, 3 s ago  1 failed  2 restarts"
    assert progress_line(report, 13_000) == line
    draining = replace(report, draining=DrainingReport(12, 3), checkpoints=(), failed=0, restarts=0)
    assert progress_line(draining, 13_000) == "[job] RUNNING  draining 3 of 12 layers  12,346 rows/s"
    drained = replace(draining, draining=DrainingReport(12, 12, 40.0))
    assert progress_line(drained, 13_000) == "[job] RUNNING  12,346 rows/s"


Printed = tuple[PrintedStream, list[tuple[int, list[str], bool]], io.StringIO]


@pytest.fixture
def printed() -> Iterator[Printed]:
    sent: list[tuple[int, list[str], bool]] = []
    original = io.StringIO()
    stream = PrintedStream(original, lambda *message: sent.append(message), lambda: 0, is_error=False)
    yield stream, sent, original
    set_current(None)


def test_whole_lines_of_a_subtask_are_sent_with_its_number(printed: Printed) -> None:
    stream, sent, original = printed
    set_current(2)
    print("a", "b", file=stream)
    print("begun ", end="", file=stream)
    assert sent == [(2, ["3> a b"], False)]
    print("ended\nand more", file=stream)
    assert [line for _, lines, _ in sent[1:] for line in lines] == ["3> begun ended", "3> and more"]
    assert original.getvalue() == ""


def test_other_threads_write_where_they_always_did(printed: Printed) -> None:
    stream, sent, original = printed
    print("ours", file=stream)
    assert (sent, original.getvalue()) == ([], "ours\n")


def test_without_a_terminal_each_line_has_a_time_a_level_and_the_jobs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    terminal = Terminal("orders")
    terminal.tell("first\nsecond")
    console = TerminalConsole(terminal)
    console.warning("Traceback (most recent call last):\n  line 1\nit failed")
    console.stop()
    time_of, rest = zip(*(line.split(" ", 1) for line in stream.getvalue().splitlines()), strict=True)
    assert rest == (
        "INFO [orders] penstock: first",
        "INFO [orders] second",
        "WARN [orders] Traceback (most recent call last):",
        "WARN [orders]   line 1",
        "WARN [orders] penstock: it failed",
    )
    assert all(datetime.fromisoformat(at).tzinfo is not None for at in time_of)


def test_lines_leave_as_wholes_and_no_more_at_once_than_a_pipe_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pieces(io.StringIO):
        pieces: list[str]

        def write(self, text: str) -> int:
            self.pieces.append(text)
            return len(text)

    stream = Pieces()
    stream.pieces = []
    monkeypatch.setattr(sys, "stderr", stream)
    lines = [f"{number} {'x' * 100}" for number in range(100)]
    Terminal().print_lines(lines, is_error=True)
    assert "".join(stream.pieces) == "\n".join(lines) + "\n"
    assert all(piece.endswith("\n") and len(piece) < 4096 for piece in stream.pieces) and len(stream.pieces) > 5


def test_two_jobs_share_the_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    first, second = Terminal("a"), Terminal("b")
    first.show("[a] RUNNING")
    second.show("[b] RUNNING")
    first.tell("told")
    first.show("")
    second.show("")
    second.show("")
    erase = "\r\x1b[K"
    assert screen.getvalue() == (
        f"[a] RUNNING{erase}[a] RUNNING  |  [b] RUNNING{erase}penstock: told\n[a] RUNNING  |  [b] RUNNING{erase}"
        f"[b] RUNNING{erase}"
    )


def test_nothing_is_shown_where_somebody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, looked = Screen(), threading.Event()
    report = JobReport("id", "a", "RUNNING", 1, 0, (), (), 0, 0, (), 1, 1)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("penstock.spark.driver.terminal._INTERVAL_S", 0.001)

    def may_show() -> bool:
        looked.set()
        return False

    progress = Progress(Terminal("a"), lambda: report, may_show)
    progress.start()
    assert looked.wait(20)
    progress.stop()
    assert screen.getvalue() == ""
