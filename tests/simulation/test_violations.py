"""Mutants name the violation that they must cause: a pattern that any violation matches proves nothing."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.test_kept_plans import KEPT

UNRELATED = (
    "sink 0: 3 rows lost [(1, 2, 3, 0)], 0 too many []",
    "final state of 2 count 0, key 'key 4': 7 rows (counted 7), expected 10",
    "no end after 250001 events and 30 s: d0: Phase.RUNNING, RUNNING, generation Generation(fence=7, counter=1)",
    "d0s1.0.0: 2 count 0 failed: AssertionError: something else\nTraceback (most recent call last):",
    "log entry 7 is by 5eed, but beef has put its fence",
    "orphan after the sweep: shared/1.0-2-0",
    "sink 0/1: split 2 key 3: (4, 0) after (5, 0)",
    "checkpoint 4 took 312 ms though nothing is wrong; with an alignment timeout of 5 ms it has 100 ms",
    "the watermark fell from 40 to 30",
    "12 restarts after 1 faults",
)
FOUND_MAX = 2
"""One thing that is broken may show itself in a few ways, and not in more."""


def _patterns() -> list[tuple[str, str]]:
    """Each mutant of a table, and the violation that it names."""
    found: list[tuple[str, str]] = [(mutant.__name__, violation) for mutant, violation in KEPT.values()]
    for path in sorted(Path(__file__).parent.glob("test_*mutants.py")):
        table: list[tuple[Any, ...]] = getattr(import_module(f"tests.simulation.{path.stem}"), "MUTANTS", [])
        found += [(mutant.__name__, violation) for mutant, *_, violation in table]
    return found


def _found_by(pattern: str) -> list[str]:
    return [violation for violation in UNRELATED if re.search(pattern, violation)]


def test_tables_are_read() -> None:
    assert len(_patterns()) > 150 and len(UNRELATED) == 10


@pytest.mark.parametrize(("mutant", "pattern"), sorted(set(_patterns())))
def test_a_mutant_names_its_violation(mutant: str, pattern: str) -> None:
    assert len(_found_by(pattern)) <= FOUND_MAX
    assert not re.search(pattern, "d0s1.0.0: 2 count 0 failed: AssertionError: something else")


@pytest.mark.parametrize("pattern", [".", "", "row|fail|after", r"\d+"])
def test_wide_patterns_are_refused(pattern: str) -> None:
    assert len(_found_by(pattern)) > FOUND_MAX
