"""A seed is one run, whatever the process, its hash seed and its clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.simulation.running import run_seed

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import hashlib, sys
from penstock.simulation.running import run_seed
for seed in (3, 8, 17):
    print(seed, hashlib.sha256("\\n".join(run_seed(seed, True).trace).encode()).hexdigest())
"""


def traces(hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout


def test_two_processes_with_other_hashes_do_the_same() -> None:
    assert traces("1") == traces("2")


def test_one_process_does_the_same_twice_and_tracing_changes_nothing() -> None:
    one, other = run_seed(8, True), run_seed(8, True)
    assert one.trace == other.trace
    assert run_seed(8).events == one.events
