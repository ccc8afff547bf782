"""Tests that objects of the main program's classes are of the classes of the program that runs now, after a new driver
and after an upgrade.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.run_programs import surroundings

PROGRAM = Path(__file__).with_name("main_classes.py")


def ran(folder: Path, *arguments: str, options: dict[str, str], program: Path = PROGRAM) -> tuple[int, str]:
    given = {"execution.checkpointing.dir": str(folder / "checkpoints"), **options}
    environment = {**surroundings(), "PENSTOCK_DYNAMIC_OPTIONS": json.dumps(given)}
    done = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, env=environment, cwd=folder
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_objects_are_of_the_classes_of_the_newest_driver(tmp_path: Path, backend: str) -> None:
    options = {"state.backend.type": backend}
    code, printed = ran(tmp_path, "1", str(tmp_path / "saved"), options=options)
    assert code == 0, printed
    saved = next(line.removeprefix("saved ") for line in printed.splitlines() if line.startswith("saved "))
    options["execution.state-recovery.path"] = saved
    code, printed = ran(tmp_path, "2", options=options)
    assert code == 0 and "finished" in printed and "operator state is restored" in printed, printed
    gone = tmp_path / "gone.py"
    gone.write_text(PROGRAM.read_text().replace("class Point(", "class Place(").replace("Point", "Place"))
    code, printed = ran(tmp_path, "3", program=gone, options=options)
    assert code != 0 and "class Point of the main program" in printed, printed
    assert "restarts in" not in printed
