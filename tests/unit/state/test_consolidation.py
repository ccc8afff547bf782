"""Tests states that are stored whole next to checkpoints: how much that writes, and until when it may be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state import state_sizes
from penstock.state.backend import Consolidation
from tests.unit.state.stored_checkpoints import BACKENDS, Checkpoint
from tests.unit.state.test_incremental import Numbers


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_state_is_stored_whole_next_to_checkpoints_and_never_by_one(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this: a checkpoint that is wanted each second takes minutes, each time the chain has become too long."""
    monkeypatch.setattr(state_sizes, "CONSOLIDATED_BYTES_MIN", 0)
    numbers = Numbers(backend, tmp_path)
    whole_bytes = numbers.checkpoint()
    largest, stored_whole = 0, 0
    begun: list[Consolidation] = []
    for round in range(60):
        numbers.set(range(round * 50 % 1000, round * 50 % 1000 + 50), round)
        numbers.set(range(round % 7, 1000, 100), None if round % 3 else round)
        largest = max(largest, numbers.checkpoint())
        assert numbers.newest is not None
        begun += numbers.newest.snapshot.consolidations
        if begun and round - begun[0].checkpoint_id > 2:
            consolidation = begun.pop()  # as it was three checkpoints ago
            consolidation.on_stored(numbers.store.consolidate(consolidation))
            stored_whole += 1
        assert numbers.restored() == numbers.model
        stored_bytes = sum(run.length_bytes for run in numbers.newest.ranges)
        assert stored_bytes < 3 * whole_bytes, "what a restore reads"
    assert largest < whole_bytes / 4 and 3 <= stored_whole <= 8
    numbers.backend.revoke()


def with_a_consolidation(backend: str, directory: Path) -> tuple[Numbers, Checkpoint, Consolidation]:
    """Return a backend whose newest checkpoint has begun a consolidation."""
    numbers = Numbers(backend, directory)
    numbers.checkpoint()
    while not numbers.newest or not numbers.newest.snapshot.consolidations:
        numbers.set(range(300), 2)
        numbers.checkpoint()
    (consolidation,) = numbers.newest.snapshot.consolidations
    return numbers, numbers.newest, consolidation


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_consolidated_before_a_state_was_stored_whole_counts_no_more(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this: it brings back the keys that were deleted in between."""
    monkeypatch.setattr(state_sizes, "CONSOLIDATED_BYTES_MIN", 0)
    numbers, newest, consolidation = with_a_consolidation(backend, tmp_path)
    newest.snapshot.on_stored([])  # nothing of it may be named: the next one stores the state whole
    consolidation.on_stored(numbers.store.consolidate(consolidation))
    numbers.set(range(10), None)
    numbers.checkpoint()
    numbers.set(range(20, 25), 7)
    numbers.checkpoint()
    assert numbers.restored() == numbers.model
    numbers.backend.revoke()


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_takes_the_place_of_a_chain(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this: a consolidation of which no range was stored stands for all entries up to its barrier."""
    monkeypatch.setattr(state_sizes, "CONSOLIDATED_BYTES_MIN", 0)
    numbers, _, consolidation = with_a_consolidation(backend, tmp_path)
    numbers.set(range(5), 3)
    numbers.checkpoint()
    consolidation.on_stored([])
    numbers.set(range(5, 10), 4)
    numbers.checkpoint()
    assert numbers.restored() == numbers.model
    numbers.backend.revoke()
