"""Every block of the documentation runs, and prints what its page says it prints: one process for each page's programs,
on a real Spark, and one for each script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.documentation import Program, Script, read_page
from tests.spark.run_programs import LIMIT_S, ROOT, Programs, surroundings

DOCS = ROOT / "docs"
# These need servers: tests/connectors/test_kafka_docs.py and tests/stores/test_storage_docs.py.
PAGES = sorted(page.name for page in DOCS.glob("*.md") if page.name not in ("kafka.md", "storage.md"))

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]


def run_script(script: Script, folder: Path, commands: Path) -> str:
    from penstock.spark.cluster.java import ensure_java

    ensure_java()
    environment = surroundings()
    environment["PATH"] = os.pathsep.join([str(commands), str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        ["bash", "-eu", "-c", script.text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
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
def test_the_blocks_of_a_page_run_and_print_what_it_says(
    name: str, tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / ".registry"))
    page = read_page((DOCS / name).read_text(encoding="utf-8"))
    with programs_in(tmp_path) as programs:
        for step in page.steps:
            if isinstance(step, Program):
                (tmp_path / step.name).write_text(step.text, encoding="utf-8")
                if not step.is_run:
                    continue
                printed = programs.run(tmp_path / step.name)
            else:
                printed = run_script(step, tmp_path, commands)
            difference = None if step.output is None else step.output.difference(printed)
            assert difference is None, f"{step.name if isinstance(step, Program) else step.text}: {difference}"
