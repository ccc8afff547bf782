"""Runs programs in one process, so that they share one Spark. As a program it reads a line of JSON for each, its path
and arguments, and runs it as the main module; after each a line says how it ended.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
ENDED = "\x1e ended: "


def surroundings() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}


class Programs:
    """A Python process that runs one program after the other, in this folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, program: Path, *arguments: str) -> str:
        """Return what a program prints. Fails the test where it raises."""
        if self._process is None:
            with (self._folder / "stderr").open("w") as stderr:
                self._process = subprocess.Popen(
                    [sys.executable, "-u", __file__],
                    cwd=self._folder,
                    env=surroundings(),
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.start()
        try:
            print(json.dumps([str(program), *arguments]), file=process.stdin, flush=True)
            printed: list[str] = []
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


def main() -> None:
    for line in sys.stdin:
        sys.argv = json.loads(line)
        folder = str(Path(sys.argv[0]).parent)
        sys.path.insert(0, folder)
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            end = "well"
        except SystemExit as ended:
            end = "well" if not ended.code else f"with {ended.code}"
        except BaseException:
            traceback.print_exc()
            end = "with an error"
        finally:
            sys.path.remove(folder)
        sys.stderr.flush()
        print(f"{ENDED}{end}", flush=True)


if __name__ == "__main__":
    main()
