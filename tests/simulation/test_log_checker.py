"""The checker of the log knows an attempt that is repeated from a driver that goes on where it owns nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.protocol.values.log_entries import CheckpointEntry
from simulation.checkers.log_checker import LogChecker


def entry(sequence: int) -> CheckpointEntry:
    return CheckpointEntry(sequence, "old", 0, sequence, 2, "chk-2/_metadata", 0, ["chk-2/_metadata"], False, 1)


@pytest.mark.parametrize("second, violations", [(1, 0), (2, 1)])
def test_only_another_deleted_position_means_that_a_driver_goes_on(second: int, violations: int) -> None:
    """Seed 913012: a reply is lost, the owner deletes the entry, and the same attempt creates it again."""
    found: list[str] = []
    checker = LogChecker(cast(Any, SimpleNamespace(violate=found.append)), *[cast(Any, None)] * 3)
    checker.base = 5
    for position in (1, second):
        checker._on_void_entry(position, entry(position))
    assert len(found) == violations, found
