"""The simulation finds broken rules of copies on the slots' own disks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.storage import local_backup
from tests.simulation.finding import assert_found

Patch = Callable[[Any, str, Any], None]


class _AnyChecksum(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def copies_are_believed(patch: Patch) -> None:
    patch(local_backup, "zlib", SimpleNamespace(crc32=lambda data: _AnyChecksum()))


def a_full_disk_fails_the_checkpoint(patch: Patch) -> None:
    def give_up(self: Any, error: OSError) -> None:
        raise error

    patch(local_backup.Copy, "give_up", give_up)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (copies_are_believed, "restart-from-damaged-copies", r"failed: |differ|rows|raised"),
    (a_full_disk_fails_the_checkpoint, "restart-from-damaged-copies", r"the disk of this machine is full"),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
