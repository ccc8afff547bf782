"""The simulation finds broken rules of copies on the slots' own disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.state.rocksdb.database_copies import DatabaseCopies
from penstock.storage import local_backup
from tests.simulation.finding import READ_DAMAGED, assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


class _AnyChecksum(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@breaks("3.9a")
def copies_are_believed(patch: Patch) -> None:
    patch(local_backup, "zlib", SimpleNamespace(crc32=lambda data: _AnyChecksum()))


@breaks("3.9b")
def a_full_disk_fails_the_checkpoint(patch: Patch) -> None:
    def give_up(self: Any, error: OSError) -> None:
        raise error

    patch(local_backup.Copy, "give_up", give_up)


@breaks("3.10")
def copies_of_databases_are_used_at_once(patch: Patch) -> None:
    take = DatabaseCopies._take

    def hasty(self: Any, tables: Any, chains: Any) -> None:
        take(self, tables, chains)
        copy = self._copies[-1]
        copy.taken_after = -1
        self._seal(copy, chains)

    patch(DatabaseCopies, "_take", hasty)


@breaks("3.10")
def nothing_is_inserted_into_a_copied_database(patch: Patch) -> None:
    opened = DatabaseCopies.open_best

    def all_of_it(self: Any) -> Any:
        found = opened(self)
        return replace(found, restored=frozenset(self._subtask.runs)) if found.restored else found

    patch(DatabaseCopies, "open_best", all_of_it)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (copies_are_believed, "restart-from-damaged-copies", READ_DAMAGED),
    (copies_of_databases_are_used_at_once, "restart-with-databases-as-they-were", r"rows .*expected"),
    (nothing_is_inserted_into_a_copied_database, "restart-with-databases-as-they-were", r"rows .*expected"),
    (a_full_disk_fails_the_checkpoint, "restart-from-damaged-copies", r"the disk of this machine is full"),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
