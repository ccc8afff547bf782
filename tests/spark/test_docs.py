"""Every block of the documentation runs, and prints what its page says it prints: one process for each page's programs,
on a real Spark, and one for each script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from documentation import Program, Script, read_page
from run_programs import ENDED

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
LIMIT_S = 120

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]


class Programs:
    """A Python process that runs one program after the other, in the page's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, program: Program) -> str:
        """What it prints. Fails the test where it raises."""
        if self._process is None:
            with (self._folder / "stderr").open("w") as stderr:
                self._process = subprocess.Popen(
                    [sys.executable, "-u", str(Path(__file__).with_name("run_programs.py"))],
                    cwd=self._folder, env=surroundings(), text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.start()
        try:
            print(self._folder / program.name, file=process.stdin, flush=True)
            printed = []
            for line in process.stdout:
                if line.startswith(ENDED):
                    assert line == f"{ENDED}well\n", "".join(printed) + self._told()
                    return "".join(printed)
                printed.append(line)
        finally:
            watchdog.cancel()
        pytest.fail(f"{program.name} ended its process, or took {LIMIT_S} s:\n{''.join(printed)}{self._told()}")

    def _told(self) -> str:
        return (self._folder / "stderr").read_text()[-5000:]

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=LIMIT_S)


def surroundings() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}


def run_script(script: Script, folder: Path, commands: Path) -> str:
    from penstock.spark.java import ensure_java

    ensure_java()
    environment = surroundings()
    environment["PATH"] = os.pathsep.join([str(commands), str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        ["bash", "-eu", "-c", script.text],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) == script.fails, f"{script.text}\n{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return done.stderr if script.fails else done.stdout


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `penstock`, installed or not."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "penstock"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m penstock.cli.main "$@"\n')
    command.chmod(0o755)
    return folder


@contextmanager
def programs_in(folder: Path) -> Iterator[Programs]:
    programs = Programs(folder)
    try:
        yield programs
    finally:
        programs.close()


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_run_and_print_what_it_says(name: str, tmp_path: Path, commands: Path) -> None:
    page = read_page((DOCS / name).read_text(encoding="utf-8"))
    with programs_in(tmp_path) as programs:
        for step in page.steps:
            if isinstance(step, Program):
                (tmp_path / step.name).write_text(step.text, encoding="utf-8")
                if not step.is_run:
                    continue
                printed = programs.run(step)
            else:
                printed = run_script(step, tmp_path, commands)
            difference = None if step.output is None else step.output.difference(printed)
            assert difference is None, f"{step.name if isinstance(step, Program) else step.text}: {difference}"
