"""Tests `penstock run -d` with programs that end before they have a job; tests/spark/test_command_line.py has one that
runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("raise ValueError('no such customer')", 1, "ValueError: no such customer"),
        ("import sys; print('some output'); sys.exit(7)", 7, "some output"),
        ("print('done')", 0, "has ended already"),
    ],
)
def test_a_program_that_ends_at_once_is_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, says: str
) -> None:
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / "jobs"))
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["run", "-d", "-D", "parallelism.default=2", str(program), "an argument"])
    assert done.exit_code == code and says in done.stderr
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in done.stderr and log.name.startswith("program-")
    assert not done.stdout, "there is no job whose id could be printed"
