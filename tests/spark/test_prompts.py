"""Tests Ctrl-C at the prompt of an interpreter, on a real terminal: the statement ends, the interpreter does not."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.run_programs import ROOT, surroundings

LIMIT_S = 120.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PROMPT = r">>> $"
SETUP = (
    "from penstock.common import *",
    "from penstock.datastream import *",
    "from penstock.datastream.connectors.datagen import DataGeneratorSource",
    "env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)",
    "source = DataGeneratorSource(lambda i: i, 10**9, type_info=Types.LONG(), rows_per_second=10.0)",
    "_ = env.from_source(source, WatermarkStrategy.no_watermarks(), 'n').print()",
)


def environment() -> dict[str, str]:
    here = {"TERM": "dumb", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return {**surroundings(), **here, "PYSPARK_DRIVER_PYTHON": sys.executable}


class Terminal:
    """Types into a program that runs on a terminal of its own, and reads what it shows."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(command[0], command, environment())
        self.shown = ""

    def expect(self, pattern: str) -> str:
        """Return what is shown from now on until the pattern matches."""
        seen, limit_s = "", time.monotonic() + LIMIT_S
        while re.search(pattern, seen) is None:
            ready, _, _ = select.select([self._terminal], [], [], limit_s - time.monotonic())
            try:
                data = os.read(self._terminal, 65536) if ready else b""
            except OSError:  # the program has ended
                data = b""
            assert data, f"{pattern!r} is not shown; the program shows:\n{self.shown[-3000:]}"
            text = data.decode(errors="replace")
            seen, self.shown = seen + text, self.shown + text
        return seen

    def type(self, line: str, pattern: str = PROMPT) -> str:
        os.write(self._terminal, f"{line}\n".encode())
        return self.expect(pattern)

    def interrupt(self) -> None:
        """Press Ctrl-C: the terminal sends SIGINT to all processes of the foreground."""
        os.write(self._terminal, b"\x03")

    def end(self) -> int:
        os.write(self._terminal, b"exit()\n")
        limit_s = time.monotonic() + LIMIT_S
        while time.monotonic() < limit_s:
            select.select([self._terminal], [], [], 0.1)
            try:
                os.read(self._terminal, 65536)
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture(params=["python", "python -i", "pyspark"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    program = tmp_path / "program.py"
    program.write_text("print('begun')\n", encoding="utf-8")
    pyspark = shutil.which("pyspark", path=str(Path(sys.executable).parent))
    command = {
        "python": [sys.executable],
        "python -i": [sys.executable, "-i", str(program)],
        "pyspark": [pyspark or "pyspark", "--master", "local[4]", "--conf", "spark.ui.enabled=false"],
    }[request.param]
    terminal = Terminal(command, tmp_path)
    try:
        yield terminal
    finally:
        try:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_ctrl_c_ends_the_statement_and_neither_interpreter_nor_session(terminal: Terminal) -> None:
    terminal.expect(PROMPT)
    for line in SETUP:
        terminal.type(line)
    terminal.type("from pyspark.sql import SparkSession")
    terminal.type("SparkSession.builder.getOrCreate().range(7).createOrReplaceTempView('seven')")
    for _ in range(2):
        terminal.type("env.execute('typed')", r"3\r\n")
        terminal.interrupt()
        shown = terminal.expect(r"KeyboardInterrupt[\s\S]*>>> $")
        assert "cancelling job" in shown and "crash" not in shown and "Job " not in shown.replace("cancelling job", "")
        assert "42" in terminal.type("6 * 7")
        terminal.type("_ = env.from_source(source, WatermarkStrategy.no_watermarks(), 'n').print()")
    terminal.type("rows = env.from_source(source, WatermarkStrategy.no_watermarks(), 'n').execute_and_collect()")
    terminal.type("next(rows), max(rows)", "RUNNING")
    terminal.interrupt()
    assert "cancelling job" in terminal.expect(r"KeyboardInterrupt[\s\S]*>>> $")
    collected = "sorted(StreamExecutionEnvironment.get_execution_environment().from_collection([3, 1], Types.LONG())"
    assert "[1, 3]" in terminal.type(f"{collected}.execute_and_collect())", r"\]\r\n[\s\S]*>>> $|Error")
    assert "7" in terminal.type(
        "SparkSession.builder.getOrCreate().table('seven').count()", r"\n7\r\n[\s\S]*>>> $|Error"
    )
    assert terminal.end() == 0
