"""Tests incremental checkpoints against a model: whatever is named, changed, deleted, given up, or not worth naming any
more, what a checkpoint's ranges restore to, one after the other, is what was there at the barrier.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.state import chains, state_sizes
from penstock.state.backend import Consolidation, StoredState
from penstock.state.heap import tables
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb import disk_table
from penstock.state.rocksdb import rocksdb_backend as rocksdb_backend
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import between_rows
from tests.unit.state.stored_checkpoints import BACKENDS, Checkpoint, Store, new_backend
from tests.unit.state.test_snapshots import DESCRIPTORS, KEY_GROUPS, KEYS, Stream


class IncrementalCheckpoints(RuleBasedStateMachine):
    kind: str
    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.number = 0
        self.stream = Stream(self.backend(), {name: {} for name in DESCRIPTORS})
        self.running: list[Checkpoint] = []
        self.completed: Checkpoint | None = None
        self.untouched: set[str] = set()
        self.consolidations: list[Consolidation] = []

    def backend(self) -> RowStateBackend[Any]:
        return new_backend(self.kind, self.directory, cached_bytes=2**11)

    @initialize(seed=st.integers(0, 2**16), touches=st.integers(0, 40))
    def begin(self, seed: int, touches: int) -> None:
        """A checkpoint has completed, so that every run may restore one from its first step on."""
        self.touch(seed, touches)
        self.take(is_savepoint=False)
        self.store_oldest(worth=7, completes=True)

    @rule(seed=st.integers(0, 2**16), touches=st.integers(1, 20))
    def touch(self, seed: int, touches: int) -> None:
        chance = random.Random(seed)
        for _ in range(touches):
            what, key = chance.choice(sorted(DESCRIPTORS)), chance.choice(KEYS)
            if chance.random() < 0.25:
                self.stream.clear(key, what)
                between_rows(self.stream.backend)
            else:
                self.stream.touch(key, what, chance.randint(1, 20))

    @rule(what=st.sampled_from(sorted(DESCRIPTORS)))
    def empty(self, what: str) -> None:
        """A state loses all its entries: what comes next begins a chain."""
        for key in list(self.stream.model[what]):
            self.stream.clear(key, what)
            between_rows(self.stream.backend)

    @precondition(lambda self: len(self.running) < 3)
    @rule(is_savepoint=st.booleans())
    def take(self, is_savepoint: bool) -> None:
        self.at_barrier()
        self.number += 1
        predecessor = None if is_savepoint and self.number % 3 == 0 else self.completed
        taken = self.stream.backend.snapshot(self.number, None if predecessor is None else predecessor.number)
        self.running.append(Checkpoint(self.number, taken, copy.deepcopy(self.stream.model), predecessor))
        self.consolidations += taken.consolidations

    @precondition(lambda self: self.running)
    @rule(data=st.data(), runs=st.integers(1, 4))
    def write_some(self, data: st.DataObject, runs: int) -> None:
        """Write some runs of one of the running checkpoints; then the stream continues."""
        self.store.write(self.running[data.draw(st.integers(0, len(self.running) - 1))], runs)

    @precondition(lambda self: self.running)
    @rule(worth=st.integers(0, 7), completes=st.booleans())
    def store_oldest(self, worth: int, completes: bool) -> None:
        """Segments that are not worth naming: the checkpoint's own, or one of the older ones."""
        checkpoint = self.running.pop(0)
        self.store.write(checkpoint)
        assert self.store.content(checkpoint) == checkpoint.expected
        left_out = {0: checkpoint.segment.path, 1: checkpoint.ranges[0].segment.path if checkpoint.ranges else ""}
        checkpoint.snapshot.on_stored([r for r in checkpoint.ranges if r.segment.path != left_out.get(worth)])
        if completes:
            self.completed = checkpoint
        self.after_storing()

    def at_barrier(self) -> None:
        """Look at the backend before a snapshot is taken of it."""

    def after_storing(self) -> None:
        """Do what follows when a checkpoint is stored, and may have completed."""

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.running.pop(data.draw(st.integers(0, len(self.running) - 1))).snapshot.discard()

    @precondition(lambda self: self.completed is not None)
    @rule(is_own=st.booleans(), asks=st.booleans())
    def fail_and_restore(self, is_own: bool, asks: bool) -> None:
        """`is_own`: the subtask learns where its ranges lie. `asks`: else it takes a checkpoint of what was restored
        before the program asks for it."""
        assert self.completed is not None
        self.stream.backend.revoke()
        self.running.clear()
        self.consolidations.clear()
        backend = self.backend()
        if is_own:
            backend.on_restored(self.completed.number, self.completed.ranges)
        self.store.restore(self.completed, backend)
        self.resume(backend, self.completed, asks)

    def resume(self, backend: RowStateBackend[Any], restored: Checkpoint, asks: bool) -> None:
        """Continue the stream with a backend that has restored a checkpoint."""
        if not asks:
            self.number += 1
            taken = backend.snapshot(self.number, restored.number)
            untouched = Checkpoint(self.number, taken, restored.expected, restored)
            self.store.write(untouched)
            assert self.store.content(untouched) == untouched.expected
            taken.on_stored(untouched.ranges)
            self.completed = untouched
        self.stream = Stream(backend, copy.deepcopy(restored.expected))
        assert self.stream.content() == restored.expected

    def teardown(self) -> None:
        assert self.stream.content() == self.stream.model
        self.stream.backend.revoke()


class ConsolidatedCheckpoints(IncrementalCheckpoints):
    """The same, with states that are stored whole next to checkpoints."""

    @precondition(lambda self: self.consolidations)
    @rule(fails=st.booleans())
    def consolidate(self, fails: bool) -> None:
        """A state is stored whole, as it was some checkpoints ago; or that fails."""
        consolidation = self.consolidations.pop(0)
        if fails:
            consolidation.discard()
        else:
            consolidation.on_stored(self.store.consolidate(consolidation))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("changed_keys_max", "values_max", "consolidated_bytes_min"),
    [(1_000_000, 250_000, 1 << 24), (12, 3, 1 << 24), (1_000_000, 2, 0)],
)
def test_what_incremental_checkpoints_restore_to(
    changed_keys_max: int,
    values_max: int,
    consolidated_bytes_min: int,
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_sizes, "CONSOLIDATED_BYTES_MIN", consolidated_bytes_min)
    monkeypatch.setattr(chains, "_FAILED_FOR", 1)
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 2)
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 1)
    monkeypatch.setattr(rocksdb_backend, "_TOUCHED_MAX", 3)
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", changed_keys_max)
    monkeypatch.setattr(tables, "VALUES_MAX", values_max)
    monkeypatch.setattr(disk_table, "NOTED_BYTES_MAX", 8)  # longer values are read again

    machine = IncrementalCheckpoints if consolidated_bytes_min else ConsolidatedCheckpoints

    class Chosen(machine):  # type: ignore[misc, valid-type]
        kind = backend
        directory = tmp_path

    run_state_machine_as_test(Chosen, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
    assert not list(tmp_path.iterdir())


NUMBER = ValueStateDescriptor("number", Types.LONG())


class Numbers:
    """A backend with 1000 numbers, whose checkpoints are stored one after the other."""

    def __init__(self, kind: str, directory: Path, descriptor: ValueStateDescriptor = NUMBER) -> None:
        self.kind = kind
        self.directory = directory
        self.descriptor = descriptor
        self.backend = new_backend(kind, directory)
        self.handle = self.backend.state("op", descriptor)
        self.store = Store()
        self.newest: Checkpoint | None = None
        self.model: dict[int, int] = {}
        self.set(range(1000), 1)

    def restart(self, named: list[StoredState]) -> None:
        """Restore the newest checkpoint into a new backend, which may name some of its ranges."""
        assert self.newest is not None
        self.backend.revoke()
        self.backend = new_backend(self.kind, self.directory)
        self.backend.on_restored(self.newest.number, named)
        self.store.restore(self.newest, self.backend)
        self.handle = self.backend.state("op", self.descriptor)

    def set(self, keys: range, value: int | None) -> None:
        for key in keys:
            self.backend.set_current_key(key, key % KEY_GROUPS)
            self.handle.update(value)
            between_rows(self.backend)
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    def checkpoint(self, is_worth: bool = True) -> int:
        """Returns how many bytes it has written. `is_worth`: whether its segment may be named."""
        before = self.newest
        number = 1 if before is None else before.number + 1
        taken = self.backend.snapshot(number, None if before is None else before.number)
        self.newest = Checkpoint(number, taken, {}, before)
        self.store.write(self.newest)
        taken.on_stored([r for r in self.newest.ranges if is_worth or r.segment != self.newest.segment])
        return self.newest.segment.length_bytes

    def restored(self) -> dict[int, int]:
        assert self.newest is not None
        backend = HashMapStateBackend(KEY_GROUPS)
        self.store.restore(self.newest, backend)
        backend.state("op", NUMBER)
        return {key: value for key, _, value in backend.entries("op", "number")}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_checkpoint_stores_what_has_changed_and_names_the_rest(backend: str, tmp_path: Path) -> None:
    numbers = Numbers(backend, tmp_path)
    whole_bytes = numbers.checkpoint()
    assert numbers.checkpoint() == 0
    numbers.set(range(10), 2)
    numbers.set(range(10, 15), None)
    assert 0 < numbers.checkpoint() < whole_bytes / 10
    assert numbers.newest is not None
    whole, *changed = [run.entries for run in numbers.newest.ranges]
    assert whole == 1000 and sorted(changed) == [5, 10]  # keys that are gone, and entries
    assert numbers.restored() == {key: 2 if key < 10 else 1 for key in range(1000) if not 10 <= key < 15}
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_lay_in_a_segment_that_is_not_worth_naming_is_stored_once_more(backend: str, tmp_path: Path) -> None:
    """A segment with a few changes and many rows in flight is not named: the chain is as before, and what has changed
    since then comes again."""
    numbers = Numbers(backend, tmp_path)
    numbers.checkpoint()
    numbers.set(range(10), 2)
    numbers.checkpoint(is_worth=False)
    numbers.set(range(20, 25), 3)
    numbers.checkpoint()
    assert numbers.newest is not None and [run.entries for run in numbers.newest.ranges] == [1000, 15]
    assert numbers.restored() == {k: 2 if k < 10 else 3 if 20 <= k < 25 else 1 for k in range(1000)}
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_of_a_restored_chain_all_runs_are_named_or_none(backend: str, tmp_path: Path, left_out: int) -> None:
    numbers = Numbers(backend, tmp_path)
    numbers.checkpoint()
    numbers.set(range(10), 2)
    numbers.checkpoint()
    assert numbers.newest is not None and len(numbers.newest.ranges) == 2
    expected = numbers.restored()
    numbers.restart([run for place, run in enumerate(numbers.newest.ranges) if place != left_out])
    numbers.set(range(3), 4)
    numbers.checkpoint()
    assert [run.entries for run in numbers.newest.ranges] == ([1000, 10, 3] if left_out == 2 else [1000])
    assert numbers.restored() == expected | dict.fromkeys(range(3), 4)
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_chain_begins_with_keys_that_were_deleted(backend: str, tmp_path: Path) -> None:
    """After a checkpoint without entries everything is stored whole. Without this: the keys that came and went since
    are where the chain begins, which nobody who reads states expects."""
    numbers = Numbers(backend, tmp_path)
    numbers.set(range(1000), None)
    assert numbers.checkpoint() == 0
    numbers.set(range(10), 2)
    numbers.set(range(5), None)
    numbers.checkpoint()
    assert numbers.newest is not None and [run.entries for run in numbers.newest.ranges] == [5]
    assert numbers.restored() == dict.fromkeys(range(5, 10), 2)
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
def test_when_changes_outgrow_the_state_it_is_stored_whole_again(backend: str, tmp_path: Path) -> None:
    numbers = Numbers(backend, tmp_path)
    whole_bytes = numbers.checkpoint()
    chains = []
    for value in range(2, 8):
        numbers.set(range(600), value)
        numbers.checkpoint()
        assert numbers.newest is not None
        chains.append(sum(run.length_bytes for run in numbers.newest.ranges))
        assert numbers.restored() == {key: value if key < 600 else 1 for key in range(1000)}
    assert max(chains) < 3 * whole_bytes
    assert whole_bytes in chains
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_restarts_do_not_make_a_chain_longer(backend: str, tmp_path: Path) -> None:
    """Knows what a restored chain begins with: it lies in one segment."""
    numbers = Numbers(backend, tmp_path)
    whole_bytes = numbers.checkpoint()
    for value in range(2, 12):
        numbers.set(range(600), value)
        numbers.checkpoint()
        assert numbers.newest is not None
        assert sum(run.length_bytes for run in numbers.newest.ranges) < 3 * whole_bytes
        numbers.restart(numbers.newest.ranges)
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("begins_with_ttl", [False, True])
def test_a_state_that_gets_or_loses_its_time_to_live_is_stored_whole_again(
    backend: str, begins_with_ttl: bool, tmp_path: Path
) -> None:
    """Stores everything: else its oldest runs would have no times, and count as used at each restore."""
    expiring = ValueStateDescriptor("number", Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).disable_cleanup_in_background().build())
    numbers = Numbers(backend, tmp_path, expiring if begins_with_ttl else NUMBER)
    numbers.checkpoint()
    numbers.set(range(10), 2)
    numbers.checkpoint()
    assert numbers.newest is not None and [run.entries for run in numbers.newest.ranges] == [1000, 10]
    numbers.descriptor = NUMBER if begins_with_ttl else expiring
    numbers.restart(numbers.newest.ranges)
    numbers.checkpoint()
    assert [run.entries for run in numbers.newest.ranges] == [1000]
    numbers.set(range(5), 3)
    numbers.checkpoint()
    assert [run.entries for run in numbers.newest.ranges] == [1000, 5]
    assert numbers.restored() == {key: 3 if key < 5 else 2 if key < 10 else 1 for key in range(1000)}
    numbers.backend.revoke()
