"""The simulation finds broken rules of checkpoints that name segments of earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.protocol.log.retention import Retention, Sweep, named_by
from penstock.protocol.restore.rescale import state_holders
from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.messages import SlotAck
from penstock.runtime.checkpoint import snapshot_writer
from penstock.runtime.checkpoint.stored_ranges import stored_states
from penstock.runtime.checkpoint.subtask_restore import SubtaskRestore
from penstock.state.chains import Chain, Chains
from simulation.world.naming_backend import NamingBackend
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("11.17")
def predecessors_are_not_kept(patch: Patch) -> None:
    patch(Retention, "named", property(lambda self: named_by(self.retained)))


@breaks("11.17")
def what_was_pinned_stays_for_ever(patch: Patch) -> None:
    def unpin(self: Any, checkpoint_id: int) -> tuple[str, ...]:
        self._pinned.pop(checkpoint_id, None)
        return ()

    replace = Retention.replace

    def forgetful(self: Any, retained: Any) -> Any:
        deletable = replace(self, retained)
        self._dropped = frozenset()
        return deletable

    patch(Retention, "unpin", unpin)
    patch(Retention, "replace", forgetful)


@breaks("11.18a")
def segments_end_with_their_checkpoint(patch: Patch) -> None:
    def all_of_them(self: Any) -> tuple[str, ...]:
        dropped, self._dropped = self._dropped, frozenset()
        return tuple(sorted(dropped))

    patch(Retention, "_take_unneeded", all_of_them)


@breaks("11.19")
def savepoints_have_predecessors(patch: Patch) -> None:
    patch(SnapshotKind, "has_predecessor", property(lambda self: self is not SnapshotKind.COMMITS_ONLY))


@breaks("11.17")
def state_of_a_pending_checkpoint_is_named(patch: Patch) -> None:
    snapshot = NamingBackend.snapshot

    def of_the_newest(self: Any, checkpoint_id: int = 0, predecessor_id: int | None = None) -> Any:
        return snapshot(self, checkpoint_id, max(self._stored, default=None))

    patch(NamingBackend, "snapshot", of_the_newest)


@breaks("11.18d")
def segments_of_a_generation_that_was_killed_stay(patch: Patch) -> None:
    deletable = Sweep.deletable

    def of_metadata(self: Any, found: Any, named: Any) -> Any:
        return [path for path in deletable(self, found, named) if "shared/" not in path]

    patch(Sweep, "deletable", of_metadata)


@breaks("11.18b")
def a_range_is_named_by_two_subtasks(patch: Patch) -> None:
    def report_all_restored(self: Any, backend: Any) -> None:
        metadata, old, vertex = self._metadata, self._old.of_head, self._subtask.vertex
        if metadata is not None and old:
            number = self._subtask.id.subtask
            holders = state_holders(len(old), vertex.parallelism, vertex.max_parallelism, number)
            restored = [r for h in holders for r in old[h].keyed if r.has_some_of(self._subtask.key_groups)]
            everything = frozenset(range(len(metadata.segments)))
            backend.on_restored(metadata.checkpoint_id, stored_states(restored, metadata.segments, everything))

    patch(SubtaskRestore, "_report_stored_ranges", report_all_restored)


@breaks("11.18c")
def all_segments_are_worth_keeping(patch: Patch) -> None:
    patch(snapshot_writer, "worth_keeping", lambda ranges, segments: frozenset(range(len(segments))))


@breaks("11.22a")
def nothing_is_stored_next_to_checkpoints(patch: Patch) -> None:
    patch(Chain, "is_to_be_consolidated", property(lambda self: False))


@breaks("11.22b")
def what_is_stored_next_to_checkpoints_belongs_to_none(patch: Patch) -> None:
    patch(SlotAck, "own", property(lambda self: frozenset(() if self.segment is None else (self.segment.path,))))


@breaks("11.22d")
def runs_since_a_consolidation_are_dropped(patch: Patch) -> None:
    patch(
        Chain, "behind", lambda self, consolidated: replace(consolidated, covers=max(self.covers, consolidated.covers))
    )


@breaks("11.22b")
def a_consolidated_state_is_named_by_several(patch: Patch) -> None:
    with_consolidated = Chains._with_consolidated

    def for_all(self: Any, name: Any, chain: Any, predecessor_id: int, checkpoint_id: int) -> Any:
        if (consolidated := self._consolidated.get(name)) is not None:
            consolidated.taken_by = None
        return with_consolidated(self, name, chain, predecessor_id, checkpoint_id)

    patch(Chains, "_with_consolidated", for_all)


@breaks("11.22b")
def what_an_aborted_checkpoint_named_first_is_named_again(patch: Patch) -> None:
    note_stored = Chains.note_stored

    def keep(self: Any, checkpoint_id: int, chains: Any) -> None:
        kept = dict(self._consolidated)
        note_stored(self, checkpoint_id, chains)
        self._consolidated.update(kept)

    with_consolidated = Chains._with_consolidated

    def again(self: Any, name: Any, chain: Any, predecessor_id: int, checkpoint_id: int) -> Any:
        consolidated = self._consolidated.get(name)
        if consolidated is not None and consolidated.taken_by is not None and consolidated.taken_by > predecessor_id:
            consolidated.taken_by = None
        return with_consolidated(self, name, chain, predecessor_id, checkpoint_id)

    patch(Chains, "note_stored", keep)
    patch(Chains, "_with_consolidated", again)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (nothing_is_stored_next_to_checkpoints, "large-states-are-stored-next-to-checkpoints", r"large states whole"),
    (
        what_is_stored_next_to_checkpoints_belongs_to_none,
        "states-are-stored-whole-next-to-checkpoints",
        r"names segments that nothing keeps",
    ),
    (
        runs_since_a_consolidation_are_dropped,
        "states-are-stored-whole-next-to-checkpoints",
        r"rows seen, \d+ counted|rows \(counted \d+\), expected",
    ),
    (
        a_consolidated_state_is_named_by_several,
        "states-are-stored-whole-next-to-several-checkpoints",
        r"names segments that nothing keeps",
    ),
    (
        what_an_aborted_checkpoint_named_first_is_named_again,
        "states-are-stored-whole-next-to-checkpoints",
        r"names segments that nothing keeps",
    ),
    (predecessors_are_not_kept, "predecessor-is-subsumed", r"is deleted, but checkpoint \d+ is pending"),
    (what_was_pinned_stays_for_ever, "predecessor-is-subsumed", r"only the last sweep deletes them"),
    (segments_end_with_their_checkpoint, "state-outlives-its-checkpoint", r"is deleted, but a checkpoint that is ret"),
    (
        segments_end_with_their_checkpoint,
        "killed-at-each-step-of-an-incremental-checkpoint",
        r"is deleted, but a checkpoint that is ret",
    ),
    (
        segments_of_a_generation_that_was_killed_stay,
        "killed-at-each-step-of-an-incremental-checkpoint",
        r"orphan after the sweep: shared/",
    ),
    (
        a_range_is_named_by_two_subtasks,
        "stored-state-is-dealt-out-again",
        r"the entry of a key was written twice|holds entries of foreign key groups",
    ),
    (
        all_segments_are_worth_keeping,
        "storage-stays-within-twice-of-what-lives",
        r"keeps \d+ bytes for \d+ that live",
    ),
    (
        savepoints_have_predecessors,
        "savepoints-name-nothing",
        r"savepoint .*: segment shared/.* is missing|orphan after the sweep",
    ),
    (state_of_a_pending_checkpoint_is_named, "predecessor-is-subsumed", r"names segments that nothing keeps for it"),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
