"""A seed is one run, whatever the process, its hash seed and its clock."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.plans.running import run_seed

ROOT = Path(__file__).parents[2]
_PROGRAM = "from tests.simulation.test_determinism import print_traces; print_traces()"


def print_traces() -> None:
    for seed in (3, 8, 17):
        print(seed, hashlib.sha256("\n".join(map(str, run_seed(seed, True).trace)).encode()).hexdigest())


def test_two_processes_with_other_hashes_do_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": other, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    print_traces()
    assert capsys.readouterr().out == done.stdout != ""


def test_one_process_does_the_same_twice_and_tracing_changes_nothing() -> None:
    one, other = run_seed(8, True), run_seed(8, True)
    assert one.trace == other.trace
    assert run_seed(8).events == one.events
