"""The simulated store without faults is a store like any other; with faults it misbehaves as it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from penstock.storage.store import ObjectExists, ObjectStore, StoreError
from simulation.world.faulty_store import FaultyStore, SharedObjects, StoreFaults
from simulation.world.world import Process, World

_SUITE = Path(__file__).parents[1] / "unit" / "storage" / "conformance.py"
_spec = importlib.util.spec_from_file_location("store_conformance", _SUITE)
assert _spec is not None and _spec.loader is not None
_conformance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_conformance)


def store_with(faults: StoreFaults, shared: SharedObjects | None = None) -> FaultyStore:
    return FaultyStore(World(1), Process("tester"), shared or SharedObjects(), "job", lambda: faults)


class TestFaultyStore(_conformance.StoreConformance):  # type: ignore[name-defined,misc]
    @pytest.fixture
    def store(self) -> ObjectStore:
        return store_with(StoreFaults(late_ms=5.0))


def test_a_refused_call_changes_nothing() -> None:
    shared = SharedObjects()
    store = store_with(StoreFaults(refused=1.0), shared)
    with pytest.raises(StoreError, match="refuses"):
        store.create("log/0", b"x")
    assert not shared.objects


def test_a_call_whose_reply_is_lost_was_carried_out() -> None:
    shared = SharedObjects()
    with pytest.raises(StoreError, match="lost"):
        store_with(StoreFaults(reply_lost=1.0), shared).create("log/0", b"x")
    with pytest.raises(ObjectExists):
        store_with(StoreFaults(), shared).create("log/0", b"y")
    assert store_with(StoreFaults(), shared).get("log/0") == b"x"


def test_two_jobs_do_not_see_each_other() -> None:
    shared = SharedObjects()
    one = FaultyStore(World(1), Process("a"), shared, "jobs/a", StoreFaults)
    other = FaultyStore(World(1), Process("b"), shared, "jobs/ab", StoreFaults)
    one.put("x", [b"1"])
    other.put("x", [b"2"])
    assert one.list("") == other.list("") == ["x"]
    assert one.get("x") == b"1"
