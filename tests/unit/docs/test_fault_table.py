"""The table of faults in tests/stores/README.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_tests_that_the_table_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "tests/stores/README.md").read_text("utf-8"))
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing
