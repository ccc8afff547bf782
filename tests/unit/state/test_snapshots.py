"""Snapshots of the backends of row functions against a model: what a snapshot writes is what was there at the barrier,
whatever the stream does to its entries, and to the objects in them, while it is being written."""

from __future__ import annotations

import copy
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from penstock.common.types import Types
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.protocol.values.keys import key_group, key_hash
from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb import rocksdb_backend as rocksdb_backend
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import between_rows, lasting

KEY_GROUPS = 4
KEYS: list[Any] = [1, 2, 3, 4, "a", "b", ("a", 1), ("b", None), 2.5, b"x"]
GROUP_OF = {key: key_group(key_hash(key), KEY_GROUPS) for key in KEYS}
Model = dict[str, dict[Any, Any]]
NewBackend = Callable[[], RowStateBackend[Any]]


class Collect(AggregateFunction):
    """Changes its accumulator in place, as users do."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return list(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def extend_in_place(left: list[int], right: list[int]) -> list[int]:
    left += right
    return left


DESCRIPTORS = {
    "number": ValueStateDescriptor("number", Types.LONG()),
    "object": ValueStateDescriptor("object"),
    "typed_list": ValueStateDescriptor("typed_list", Types.LIST(Types.LONG())),
    "numbers": ListStateDescriptor("numbers", Types.LONG()),
    "objects": ListStateDescriptor("objects"),
    "counts": MapStateDescriptor("counts", Types.STRING(), Types.LONG()),
    "things": MapStateDescriptor("things", Types.STRING(), None),
    "reduced": ReducingStateDescriptor("reduced", extend_in_place),
    "collected": AggregatingStateDescriptor("collected", Collect()),
}


class Stream:
    """A backend and the model of what is in it, changed together."""

    def __init__(self, backend: RowStateBackend[Any], model: Model) -> None:
        self.backend = backend
        self.model = model
        self.handles = {name: backend.state("op", descriptor) for name, descriptor in DESCRIPTORS.items()}

    def touch(self, key: Any, what: str, n: int) -> None:
        """One touch of one entry; `n` is the value, and picks the way where there are several."""
        self.backend.set_current_key(key, GROUP_OF[key])
        handle, model = self.handles[what], self.model[what]
        getattr(self, f"_touch_{what}")(handle, model, key, n)
        between_rows(self.backend)

    def clear(self, key: Any, what: str) -> None:
        self.backend.set_current_key(key, GROUP_OF[key])
        self.handles[what].clear()
        self.model[what].pop(key, None)

    @staticmethod
    def _touch_number(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        assert handle.value() == model.get(key)
        handle.update((handle.value() or 0) + n)
        model[key] = model.get(key, 0) + n

    @staticmethod
    def _touch_object(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        value = handle.value()
        assert value == model.get(key)
        if value is None:
            handle.update({"seen": [n]})
            model[key] = {"seen": [n]}
        else:
            value["seen"].append(n)
            model[key]["seen"].append(n)
            if n % 2:
                handle.update(value)

    @staticmethod
    def _touch_typed_list(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        value = handle.value() or []
        value.append(n)
        handle.update(value)
        model.setdefault(key, []).append(n)

    @staticmethod
    def _touch_numbers(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        assert handle.get() == model.get(key, [])
        handle.get().append(99)
        if n % 5 == 0:
            handle.update([n])
            model[key] = [n]
        else:
            handle.add(n)
            handle.add_all([n, n])
            model.setdefault(key, []).extend([n, n, n])

    @staticmethod
    def _touch_objects(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        for item, expected in zip(handle.get(), model.get(key, []), strict=True):
            assert item == expected
            item.append(n)
            expected.append(n)
        handle.add([n])
        model.setdefault(key, []).append([n])

    @staticmethod
    def _touch_counts(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        expected = model.setdefault(key, {})
        field = "abc"[n % 3]
        assert handle.get(field) == expected.get(field)
        if n % 4 == 0:
            handle.remove(field)
            expected.pop(field, None)
        else:
            handle.put(field, n)
            expected[field] = n
        assert dict(handle.items()) == expected
        if not expected:
            del model[key]

    @staticmethod
    def _touch_things(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        field = "abc"[n % 3]
        value = handle.get(field)
        if value is None:
            handle.put(field, [n])
            model.setdefault(key, {})[field] = [n]
        else:
            value.append(n)
            model[key][field].append(n)
        for value in handle.values():
            value.append(-n)
        for value in model[key].values():
            value.append(-n)

    @staticmethod
    def _touch_reduced(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        handle.add([n])
        model.setdefault(key, []).append(n)
        assert handle.get() == model[key]

    @staticmethod
    def _touch_collected(handle: Any, model: dict[Any, Any], key: Any, n: int) -> None:
        handle.add(n)
        model.setdefault(key, []).append(n)
        assert handle.get() == model[key]

    def content(self) -> Model:
        """Return what the handles show."""
        found: Model = {name: {} for name in DESCRIPTORS}
        for key in KEYS:
            self.backend.set_current_key(key, GROUP_OF[key])
            for name, handle in self.handles.items():
                if name in ("number", "object", "typed_list"):
                    value = handle.value()
                elif name in ("counts", "things"):
                    value = dict(handle.items()) or None
                else:
                    value = handle.get() or None
                if value is not None:
                    found[name][key] = value
        return found


def new_hash_map() -> RowStateBackend[Any]:
    return HashMapStateBackend(KEY_GROUPS)


def new_stream(new: NewBackend = new_hash_map) -> Stream:
    return Stream(new(), {name: {} for name in DESCRIPTORS})


def restored(encoded: list[EncodedState], schemas: list[Any], new: NewBackend = new_hash_map) -> Stream:
    key_groups = range(KEY_GROUPS)
    backend = new()
    for schema in schemas:
        backend.restore_schema(schema)
    for state in encoded:
        backend.restore(state.operator, state.name, b"".join(state.parts), key_groups)
    stream = Stream(backend, {})
    stream.model = copy.deepcopy(stream.content())
    return stream


class SnapshotsWhileTheStreamGoesOn(RuleBasedStateMachine):
    """Every batch that a snapshot encodes is a step of its own, so that touches come between any two of them."""

    new = staticmethod(new_hash_map)

    def __init__(self) -> None:
        super().__init__()
        self.stream = new_stream(self.new)
        self.live: list[tuple[Any, Iterator[Any], list[EncodedState], Model]] = []

    @rule(key=st.sampled_from(KEYS), what=st.sampled_from(sorted(DESCRIPTORS)), n=st.integers(1, 20))
    def touch(self, key: Any, what: str, n: int) -> None:
        self.stream.touch(key, what, n)

    @rule(seed=st.integers(0, 2**16))
    def touch_many(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            self.stream.touch(chance.choice(KEYS), chance.choice(sorted(DESCRIPTORS)), chance.randint(1, 20))

    @rule(key=st.sampled_from(KEYS), what=st.sampled_from(sorted(DESCRIPTORS)))
    def clear(self, key: Any, what: str) -> None:
        self.stream.clear(key, what)

    @precondition(lambda self: len(self.live) < 3)
    @rule()
    def snapshot(self) -> None:
        snapshot = self.stream.backend.snapshot()
        self.live.append((snapshot, lasting(snapshot.encode()), [], copy.deepcopy(self.stream.model)))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def encode_some(self, data: st.DataObject, steps: int) -> None:
        chosen = data.draw(st.integers(0, len(self.live) - 1))
        snapshot, encoding, encoded, expected = self.live[chosen]
        for _ in range(steps):
            state = next(encoding, None)
            if state is None:
                del self.live[chosen]
                assert restored(encoded, snapshot.schemas).model == expected
                return
            encoded.append(state)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        snapshot, encoding, _, _ = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        snapshot.discard()
        assert len(list(encoding)) <= 1

    @precondition(lambda self: self.live)
    @rule()
    def fail_and_restore(self) -> None:
        snapshot, encoding, encoded, expected = self.live[-1]
        encoded += encoding
        self.stream.backend.revoke()
        self.stream = restored(encoded, snapshot.schemas, self.new)
        assert self.stream.model == expected
        self.live.clear()

    def teardown(self) -> None:
        assert self.stream.content() == self.stream.model
        self.stream.backend.revoke()


@pytest.fixture(autouse=True)
def every_batch_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 2)
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 1)


def test_snapshots_while_the_stream_goes_on() -> None:
    run_state_machine_as_test(
        SnapshotsWhileTheStreamGoesOn, settings=settings(max_examples=120, stateful_step_count=40, deadline=None)
    )


def on_disk(directory: Path, cached_bytes: int) -> NewBackend:
    settings = RocksDBSettings((str(directory),), memory_bytes=2**23, cached_bytes=cached_bytes)
    return lambda: RocksDBStateBackend(KEY_GROUPS, settings=settings)


@pytest.mark.parametrize("cached_bytes", [1, 2**12])
def test_snapshots_of_rocksdb_while_the_stream_goes_on(
    cached_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are small, and little is kept in memory, so that entries come from everywhere."""
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 2)
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 1)
    monkeypatch.setattr(rocksdb_backend, "_TOUCHED_MAX", 3)

    class OnDisk(SnapshotsWhileTheStreamGoesOn):
        new = staticmethod(on_disk(tmp_path, cached_bytes))

    run_state_machine_as_test(OnDisk, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(4))
def test_snapshots_beside_a_busy_thread(seed: int) -> None:
    """The same with real threads that change places every microsecond."""
    chance = random.Random(seed)
    stream = new_stream()
    failures: list[str] = []
    writers: list[threading.Thread] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(12):
            for _ in range(150):
                stream.touch(chance.choice(KEYS), chance.choice(sorted(DESCRIPTORS)), chance.randint(1, 20))
            if chance.random() < 0.3:
                stream.clear(chance.choice(KEYS), chance.choice(sorted(DESCRIPTORS)))
            snapshot = stream.backend.snapshot()
            expected = copy.deepcopy(stream.model)

            def write(snapshot: Any = snapshot, expected: Model = expected) -> None:
                try:
                    if restored(list(lasting(snapshot.encode())), snapshot.schemas).model != expected:
                        failures.append("a snapshot holds something else than what was there at the barrier")
                except BaseException as error:
                    failures.append(repr(error))

            writers.append(threading.Thread(target=write))
            writers[-1].start()
            if chance.random() < 0.2:
                snapshot_given_up = stream.backend.snapshot()
                encoding = snapshot_given_up.encode()
                next(encoding, None)
                threading.Thread(target=snapshot_given_up.discard).start()
                writers.append(threading.Thread(target=lambda encoding=encoding: list(encoding)))
                writers[-1].start()
        for writer in writers:
            writer.join(timeout=60)
            assert not writer.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert stream.content() == stream.model
