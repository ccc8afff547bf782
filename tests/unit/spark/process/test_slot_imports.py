"""Tests what a new slot process imports before it can work: a lost one is back when that is done."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from penstock.spark.process.slot_task import NEEDS

ROOT = Path(__file__).resolve().parents[4]
IMPORTS = (
    "penstock.spark.process.slot_main, penstock.runtime.process.threads, penstock.datastream.connectors.file_system"
)


def test_a_slot_imports_what_executors_are_asked_for_and_nothing_slow_beside_it() -> None:
    """pandas comes with Acero, which only expressions over columns need; YAML is for the driver, where files are."""
    program = f"import sys, {IMPORTS}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    packages = {re.match(r"\w+", line)[0].replace("pyyaml", "yaml") for line in declared}  # type: ignore[index]
    assert (packages & imported) - {"pyspark"} == {name for name, _ in NEEDS}
    assert not imported & {"pandas", "pyarrow.acero", "pyarrow.dataset"}
