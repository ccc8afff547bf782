"""Tests section 11 of the protocol, as a model: three drivers race for one log, with lost, late and refused
operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.log import job_log
from penstock.protocol.log.publication import (
    CheckpointUnreadable,
    Fenced,
    LogRefused,
    OutcomeUnknown,
    Publication,
    Published,
    TakenOver,
)
from penstock.protocol.values.log_entries import CheckpointEntry, Fence
from tests.unit.protocol.log.log_store import Conversing, LogStore, new, path_of


@dataclass
class Driver:
    """Takes over, then publishes one checkpoint after the other, each derived from the one before."""

    name: str
    store: LogStore
    publication: Publication = field(init=False)
    talk: Conversing | None = None
    restored: int = 0
    next_id: int = 0
    is_owner: bool = False
    is_dead: bool = False
    committed: list[int] = field(default_factory=list)
    shortens: list[int] = field(default_factory=list)
    """Positions that it still has to delete, one in a step."""

    def step(self, fault: str) -> None:
        if self.is_dead:
            return
        if self.shortens and self.talk is None:
            self.store.shorten((self.shortens.pop(),))
            return
        if self.talk is None:
            if not self.is_owner:
                self.publication = Publication(self.name, 1)
                self.talk = Conversing(self.publication.take_over(resume=self.name != "d0"))
            else:
                self.next_id += 1
                self.talk = Conversing(self.publication.publish(new(self.store, self.next_id, self.name)))
        if not self.talk.is_done:
            self.talk.step(self.store, fault)
        if self.talk.is_done:
            self._finish(self.talk)
            self.talk = None

    def _finish(self, talk: Conversing) -> None:
        result: Any = talk.result
        if talk.error is not None:
            assert isinstance(talk.error, (Fenced, LogRefused, OutcomeUnknown, CheckpointUnreadable)), talk.error
            assert not isinstance(talk.error, CheckpointUnreadable), "the newest checkpoint below a fence is never gone"
            self.is_dead = True
        elif isinstance(result, TakenOver):
            self.is_owner = True
            self.restored = 0 if result.newest is None else result.newest.checkpoint_id
            self.next_id = result.next_checkpoint_id - 1
        elif isinstance(result, Published):
            self.committed.append(result.entry.checkpoint_id)
            self.store.delete(result.deletable)
            self.shortens = list(result.shortened)


FAULTS = ["", "", "", "", "", "", "", "", "", "", "", "", "lost", "refused", "late", "flush", "kill"]
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(FAULTS)), min_size=60, max_size=120)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from((1, 2, 8)))
def test_drivers_that_race_never_commit_different_histories(steps: list[tuple[int, str]], kept: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_log, "ENTRIES_KEPT", kept)
        _race(steps)


def _race(steps: list[tuple[int, str]]) -> None:
    store = LogStore()
    drivers = [Driver(f"d{i}", store) for i in range(3)]
    for who, fault in steps:
        if fault == "flush":
            store.apply_late()
        elif fault == "kill":
            drivers[who].is_dead = True
        else:
            drivers[who].step(fault)
    assert sorted(store.history) == list(range(len(store.history))), "dense"
    history = [e for _, e in sorted(store.history.items())]
    if history:
        counted = range(history[-1].base, len(history))
        assert all(store.entries.get(p) == history[p] for p in counted), "what the log counts is there"
    owner_name, newest = "", 0
    # A driver that was overtaken before it had verified its fence puts another one.
    last_fences = {e.incarnation: e.sequence for e in history if isinstance(e, Fence)}
    for entry in history:
        if isinstance(entry, Fence):
            owner_name = entry.incarnation
            driver = drivers[int(owner_name[1:])]
            if driver.is_owner and entry.sequence == last_fences[owner_name]:
                assert driver.restored == newest, "it goes on from what stands below its fence"
        elif isinstance(entry, CheckpointEntry):
            assert entry.incarnation == owner_name, "nobody publishes after a foreign fence"
            assert entry.checkpoint_id > newest
            newest = entry.checkpoint_id
    for driver in drivers:
        logged = [e.checkpoint_id for e in history if isinstance(e, CheckpointEntry) and e.incarnation == driver.name]
        assert driver.committed == logged[: len(driver.committed)], "what is committed stands in the log, in its order"
    if newest:
        assert store.metadata[path_of(newest)].incarnation == next(
            e.incarnation for e in reversed(history) if isinstance(e, CheckpointEntry)
        )
