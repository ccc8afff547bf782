"""Tests incremental checkpoints of state that is restored while its subtask runs, against a model: segments that no
retained checkpoint names are deleted at once, and whatever the stream and its checkpoints hold is what was there.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from penstock.state import state_sizes
from penstock.state.rocksdb import lazy_state
from penstock.state.rocksdb import rocksdb_backend as rocksdb_backend
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.stored_checkpoints import Checkpoint
from tests.unit.state.test_incremental import IncrementalCheckpoints
from tests.unit.state.test_lazy_restore import Apart, new_lazy_backend
from tests.unit.state.test_snapshots import Stream


class LazyCheckpoints(IncrementalCheckpoints):
    """Segments that no retained checkpoint names are deleted at once."""

    lazily = 0
    missing_at_a_barrier = 0

    def __init__(self) -> None:
        super().__init__()
        self.apart = Apart(self.store)

    def backend(self) -> RowStateBackend[Any]:
        return new_lazy_backend(self.directory, cached_bytes=2**11, range_bytes=1)

    @rule(steps=st.integers(1, 4))
    def load(self, steps: int) -> None:
        self.apart.run(steps)

    def at_barrier(self) -> None:
        type(self).missing_at_a_barrier += self.stream.backend._local.is_loading  # type: ignore[attr-defined]

    def after_storing(self) -> None:
        self.delete_what_nobody_names()

    def delete_what_nobody_names(self) -> None:
        pinned = [checkpoint.predecessor for checkpoint in self.running]
        retained = [checkpoint for checkpoint in [self.completed, *pinned] if checkpoint is not None]
        named = {run.segment.path for checkpoint in retained for run in checkpoint.ranges}
        for path in [path for path in self.store.data if path not in named]:
            del self.store.data[path]

    @precondition(lambda self: self.completed is not None)
    @rule(is_own=st.booleans(), asks=st.booleans(), takes=st.booleans())
    def fail_and_restore(self, is_own: bool, asks: bool, takes: bool) -> None:
        """`takes`: a checkpoint is taken before anything else happens."""
        assert self.completed is not None
        self.stream.backend.revoke()
        self.running.clear()
        self.delete_what_nobody_names()
        self.apart.finish()  # what is left of the generation that has ended
        backend = self.backend()
        type(self).lazily += self.apart.restore(self.completed, backend, is_own)
        if not asks:
            self.number += 1
            taken = backend.snapshot(self.number, self.completed.number)
            untouched = Checkpoint(self.number, taken, self.completed.expected, self.completed)
            self.store.write(untouched)
            assert self.store.content(untouched) == untouched.expected
            taken.on_stored(untouched.ranges)
            self.completed = untouched
            self.delete_what_nobody_names()
        self.stream = Stream(backend, copy.deepcopy(self.completed.expected))
        if takes:
            self.take(is_savepoint=True)


@pytest.mark.parametrize("changed_keys_max", [1_000_000, 12])
def test_what_is_restored_lazily_is_what_was_stored(
    changed_keys_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_state, "_FILE_ENTRIES_MIN", 3)
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 2)
    monkeypatch.setattr(rocksdb_backend, "_TOUCHED_MAX", 3)
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", changed_keys_max)

    class Chosen(LazyCheckpoints):
        kind = "rocksdb"
        directory = tmp_path

    chosen = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True)
    run_state_machine_as_test(Chosen, settings=chosen)
    assert Chosen.lazily and Chosen.missing_at_a_barrier
    assert not list(tmp_path.iterdir())
