"""The simulation finds broken rules of state that expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.cleanup import Cleanup
from penstock.state.heap import ttl_handles
from penstock.state.rocksdb.disk_table import DiskTable
from penstock.state.rocksdb.disk_walk import DiskWalk
from penstock.state.row_backend import RowStateBackend
from penstock.state.ttl import StampedType
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]

LOST = r"are lost before \d+ ms are over"
RETURNED = r"are returned of .* although they live for \d+ ms"


@breaks("8.4a")
def a_restore_counts_as_a_use(patch: Patch) -> None:
    stamped = RowStateBackend._stamped

    def used_now(self: Any, name: Any, codec: Any, runs: Any) -> Any:
        stored = codec.stored_type
        if isinstance(stored, StampedType):
            now_ms = self._wall_ms()
            decode = type(stored).decode

            def decoded(batch: Any) -> Any:
                return [_used(stored.kind, kept, now_ms) for kept in decode(stored, batch)]

            object.__setattr__(stored, "decode", decoded)
        return stamped(self, name, codec, runs)

    patch(RowStateBackend, "_stamped", used_now)


def _used(kind: str, kept: Any, now_ms: int) -> Any:
    if kind == "list":
        return [(now_ms, value) for _, value in kept]
    if kind == "map":
        return {key: (now_ms, value) for key, (_, value) in kept.items()}
    return now_ms, kept[1]


@breaks("8.4a")
def a_read_that_prolongs_a_life_is_no_change(patch: Patch) -> None:
    def read(self: Any) -> Any:
        kept = self._buckets[self._at.key_group].get(self._at.key)
        now_ms = self._wall_ms()
        if kept is None or kept[0] + self._ttl_ms <= now_ms:
            return None
        dict.__setitem__(self._buckets[self._at.key_group], self._at.key, (now_ms, kept[1]))
        return kept

    patch(ttl_handles.ExpiringHandle, "_read", read)


@breaks("8.4c")
def expired_entries_are_returned(patch: Patch) -> None:
    made = ttl_handles.ExpiringHandle.__init__

    def longer(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self._ttl_ms += 20

    patch(ttl_handles.ExpiringHandle, "__init__", longer)


@breaks("8.4b")
def clean_up_does_not_look_into_memory(patch: Patch) -> None:
    patch(DiskTable, "in_memory", lambda self, key, stored: stored)
    made = DiskWalk.__init__
    patch(DiskWalk, "__init__", lambda self, table, flush: made(self, table, lambda: None))


@breaks("8.4b")
def clean_up_removes_whole_entries(patch: Patch) -> None:
    remove = Cleanup._remove

    def all_of_it(self: Any, expired: Any, expired_ms: int) -> None:
        remove(self, [(key, key_group, True) for key, key_group, _ in expired], expired_ms)

    patch(Cleanup, "_remove", all_of_it)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (a_restore_counts_as_a_use, "state-expires-over-restarts", RETURNED),
    (a_read_that_prolongs_a_life_is_no_change, "state-that-is-read-lives-on", LOST),
    (expired_entries_are_returned, "state-expires-over-restarts", RETURNED),
    (clean_up_does_not_look_into_memory, "state-on-disk-expires-over-restarts", LOST),
    (clean_up_removes_whole_entries, "state-expires-over-restarts", LOST),
    (clean_up_removes_whole_entries, "state-on-disk-expires-over-restarts", LOST),
    (a_restore_counts_as_a_use, [362, *range(60)], RETURNED),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
