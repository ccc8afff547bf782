"""Tests the wheel in an environment of its own, without the sources: the first program runs on a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.run_programs import LIMIT_S, ROOT
from tests.spark.test_programs import COUNTED_WORDS, counted_words, first_program
from tests.unit.test_wheel import built

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]

WHERE = "import json, penstock, sys; print(json.dumps([penstock.__file__, sys.path]))"


class Installed:
    """A virtual environment that has the wheel, and what Penstock depends on from the environment of the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        wheel = built("wheel", folder / "dist")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", str(wheel)], check=True, timeout=LIMIT_S)
        # Packages of a folder that a .pth file names are found; the .pth files in it, one of which leads to our
        # sources, are not read.
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def run(self, arguments: Sequence[str | Path]) -> str:
        """Return Python's output with these arguments, in a folder that is not ours."""
        surroundings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self._folder,
            env={**surroundings, "PYSPARK_PYTHON": str(self.python)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout


def test_the_first_program_of_the_readme_runs_with_the_wheel_alone(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    program = tmp_path / "word_lengths.py"
    program.write_text(first_program(), encoding="utf-8")

    file, path = json.loads(installed.run(["-c", WHERE]))
    assert Path(file).is_relative_to(tmp_path) and str(ROOT) not in path
    assert counted_words(installed.run([program])) == COUNTED_WORDS
