"""Tests columnar state against a dict: any keys in any batches, removals, and snapshots that are read while it
continues to change, restored by key group at other parallelisms.
"""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta
from random import Random
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocol.values.keys import key_group_range
from penstock.state.columnar import slot_arrays, slot_index, slot_log, table_keys, table_view
from penstock.state.columnar.changed_entries import RemovedKeys
from penstock.state.columnar.column_table import ColumnTable, ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarStateBackend

GROUPS = 16
VALUES = [ValueColumn("sum", np.int64, 0), ValueColumn("most", np.float64, -np.inf)]
KINDS: dict[str, list[pa.DataType]] = {
    "integers": [pa.int64()],
    "strings": [pa.string()],
    "strings of one length": [pa.string()],
    "bytes and small integers": [pa.binary(), pa.int8()],
    "booleans, floats and dates": [pa.bool_(), pa.float32(), pa.date32()],
    "timestamps and strings": [pa.timestamp("us"), pa.string(), pa.int64()],
}


def key_of(kind: str, number: int) -> tuple[Any, ...]:
    text = "x" * (number % 29) + str(number)
    match kind:
        case "integers":
            return (number * 2**40 - 7,)
        case "strings":
            return (text + "é" * (number % 3) if number else "",)
        case "strings of one length":
            return (f"{number:->27}é{number % 5}",)
        case "bytes and small integers":
            return (b"\0" * (number // 200), number % 200 - 100)
        case "booleans, floats and dates":
            return (number % 2 == 0, number / 4 - 10, date(2020, 1, 1) + timedelta(number % 17))
        case _:
            return (datetime(2020, 1, 1) + timedelta(microseconds=number % 50), text, -number)


def group_of(number: int) -> int:
    return number * 7 % GROUPS


class Model:
    def __init__(self, kind: str, *, incremental: bool = False) -> None:
        self.kind = kind
        self.schema = pa.schema([(f"k{i}", t) for i, t in enumerate(KINDS[kind])])
        self.backend = ColumnarStateBackend(incremental=incremental)
        self.table = self.backend.table("op", "state", self.schema, VALUES)
        self.expected: dict[tuple[Any, ...], tuple[int, int, float]] = {}

    def fold(self, numbers: list[int], values: list[int]) -> None:
        keys = [key_of(self.kind, n) for n in numbers]
        columns = [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(self.schema)]
        groups = np.array([group_of(n) for n in numbers], np.uint16)
        slots = self.table.find_or_insert(self.table.rows(columns), groups).slots
        self.table.touch(slots)
        sums, most = self.table.values
        np.add.at(sums, slots, np.array(values))
        np.maximum.at(most, slots, np.array(values, np.float64))
        self.table.after_write(slots, [0, 1])
        for key, number, value in zip(keys, numbers, values):
            _, before, greatest = self.expected.get(key, (0, 0, -np.inf))
            self.expected[key] = (group_of(number), before + value, max(greatest, value))

    def remove(self, some: Random, share: float) -> None:
        live = self.table.live_slots()
        slots = live[np.array([some.random() < share for _ in live], bool)] if len(live) else live
        for key in rows_of(self.table.keys_of(slots)):
            del self.expected[key]
        self.table.remove(slots)

    def check(self) -> None:
        live = self.table.live_slots()
        assert self.table.live == len(live) == len(self.expected)
        keys = rows_of(self.table.keys_of(live))
        groups, values = self.table.key_groups_of(live).tolist(), [v[live].tolist() for v in self.table.values]
        assert dict(zip(keys, zip(groups, *values))) == self.expected


def rows_of(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in columns)))


def restored(kind: str, parts: list[bytes], parallelism: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for subtask in range(parallelism):
        groups = key_group_range(GROUPS, parallelism, subtask)
        model = Model.__new__(Model)
        model.backend = ColumnarStateBackend()
        for part in parts:
            model.backend.restore("op", "state", part, groups)
        schema = pa.schema([(f"k{i}", t) for i, t in enumerate(KINDS[kind])])
        table = model.backend.table("op", "state", schema, VALUES)
        live = table.live_slots()
        of_group = table.key_groups_of(live).tolist()
        assert all(g in groups for g in of_group)
        mine = dict(zip(rows_of(table.keys_of(live)), zip(of_group, *(v[live].tolist() for v in table.values))))
        assert not mine.keys() & found.keys()
        found |= mine
    return found


def whole(taken: Any) -> list[bytes]:
    return [b"".join(bytes(p) for p in made.parts) for made in taken.encode()]


def encoded_in_steps(model: Model, taken: Any) -> Any:
    """A generator that copies a block of the snapshot with each step, and returns its parts."""
    parts = []
    for made in taken.encode():
        parts.append(b"".join(bytes(p) for p in made.parts))
        yield
    return parts


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_it_is_a_dict_whose_snapshots_nobody_waits_for(kind: str, seed: int) -> None:
    random = Random(seed)
    space = random.choice([1, 5, 60, 400, 3000])
    model = Model(kind)
    reading: list[tuple[Any, dict[Any, Any]]] = []
    for _ in range(random.randrange(2, 16)):
        rows = random.choice([1, 3, 50, 700])
        model.fold([random.randrange(space) for _ in range(rows)], [random.randrange(-9, 9) for _ in range(rows)])
        if random.random() < 0.35:
            model.remove(random, random.choice([0.1, 0.6, 1.0]))
        if random.random() < 0.4:
            reading.append((encoded_in_steps(model, model.backend.snapshot()), dict(model.expected)))
        if reading and random.random() < 0.5:
            step(reading, random, kind)
    model.check()
    while reading:
        step(reading, random, kind)


def step(reading: list[tuple[Any, dict[Any, Any]]], random: Random, kind: str) -> None:
    at = random.randrange(len(reading))
    steps, expected = reading[at]
    try:
        next(steps)
    except StopIteration as end:
        del reading[at]
        assert restored(kind, end.value, random.choice([1, 2, 3])) == expected


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show with hundreds of keys what happens with millions."""
    monkeypatch.setattr(table_view, "_BLOCK_SLOTS_MAX", 64)
    monkeypatch.setattr(slot_log, "_MARKED_AT_ONCE_SLOTS_MAX", 16)
    monkeypatch.setattr(slot_arrays, "_AT_ONCE_SLOTS_MAX", 32)
    monkeypatch.setattr(slot_arrays, "_COPIED_PER_NEW_SLOT", 4)
    monkeypatch.setattr(slot_arrays, "CAPACITY_MIN", 64)
    monkeypatch.setattr(slot_index, "_SIZE_MIN", 64)
    monkeypatch.setattr(slot_index, "_LARGE_SIZE", 256)
    monkeypatch.setattr(slot_index, "_CLEARED_AT_ONCE", 32)
    monkeypatch.setattr(slot_index, "_CLEARED_PER_NEW_SLOT", 4)
    monkeypatch.setattr(slot_index, "_MOVED_AT_ONCE_MAX", 16)
    monkeypatch.setattr(table_keys, "_HEAP_COMPACTED_FROM_BYTES", 256)
    monkeypatch.setattr(table_keys, "_GATHERED_BYTES", 64)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_has_changed_is_read_as_it_was_while_the_stream_writes(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(table_view, "BLOCK_BYTES", random.choice([256, 1024]))
    monkeypatch.setattr(table_view, "_CHANGED_TIMES", random.choice([1, 3]))
    model = Model(kind, incremental=True)
    space = random.choice([60, 400, 1500])
    model.fold(list(range(space)), [1] * space)
    before = dict(model.expected)
    model.table.now = 2
    share = random.choice([0.02, 0.3, 1.0])
    changed = [number for number in range(space) if random.random() < share]
    model.fold(changed, [random.randrange(1, 9) for _ in changed])
    expected = {key: value for key, value in model.expected.items() if value != before[key]}
    view = model.table.view(since=1)
    model.table.now = 3
    read: dict[tuple[Any, ...], Any] = {}
    for keys, groups, values in view.blocks():
        entries = dict(zip(rows_of(keys), zip(groups.tolist(), *(v.tolist() for v in values))))
        assert not entries.keys() & read.keys()
        read |= entries
        numbers = [random.randrange(2 * space) for _ in range(random.choice([1, 50]))]
        model.fold(numbers, [1] * len(numbers))
        model.remove(random, random.choice([0.0, 0.1]))
    assert read == expected
    assert view.released, "what has been copied is not logged any more"
    model.check()


def changed_view(keys: list[str], monkeypatch: pytest.MonkeyPatch) -> table_view.TableView:
    monkeypatch.setattr(table_view, "BLOCK_BYTES", 1024)
    table = ColumnTable(pa.schema([("s", pa.string())]), VALUES, RemovedKeys())
    table.now = 2
    table.touch(table.find_or_insert(table.rows([pa.array(keys)]), np.zeros(len(keys), np.uint16)).slots)
    return table.view(since=1)


def test_a_few_keys_that_are_much_longer_than_others_come_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [*map(str, range(1000)), *(f"{n:>800}" for n in range(10)), f"{0:>5000}"]
    read = [keys.to_pylist() for (keys,), _, _ in changed_view(keys, monkeypatch).blocks()]
    assert [key for piece in read for key in piece] == keys
    assert all(len(piece) == 1 or sum(map(len, piece)) <= 1024 for piece in read)


def test_what_has_changed_is_not_read_on_once_the_view_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    view = changed_view([*map(str, range(1000))], monkeypatch)
    pieces = view.blocks()
    next(pieces)
    view.release()
    assert list(pieces) == []


def test_a_key_that_comes_and_goes_between_two_blocks_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this: the log of a large table grows with each of them, while the writer stores something else."""
    monkeypatch.setattr(table_view, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(slot_log, "_MARKED_AT_ONCE_SLOTS_MAX", 16)
    table = ColumnTable(pa.schema([("n", pa.int64())]), VALUES, None)

    def come(key: int) -> None:
        table.touch(table.find_or_insert(table.rows([pa.array([key])]), np.zeros(1, np.uint16)).slots)

    for key in range(1000):
        come(key)
    table.remove(table.find(table.rows([pa.array([999])]))[0])
    view = table.view()
    blocks = view.blocks()
    next(blocks)
    for key in range(2000, 2100):
        come(key)
        table.remove(table.find(table.rows([pa.array([key])]))[0])
    assert [len(log._log) for log in view._logs] == [1, 1]
    assert sum(len(groups) for _, groups, _ in blocks) < 1000
    table.remove(table.live_slots())


def test_equal_numbers_are_one_key_and_equal_hashes_are_not() -> None:
    floats = ColumnTable(pa.schema([("x", pa.float64())]), VALUES)
    nans = np.array([0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001], np.uint64).view(np.float64).tolist()
    found = floats.find_or_insert(floats.rows([pa.array([0.0, -0.0, *nans, 1.0])]), np.zeros(5, np.uint16))
    assert len(set(found.slots.tolist())) == 3
    texts = ColumnTable(pa.schema([("s", pa.string())]), VALUES)
    given_keys = ["", "\0", "\0\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "abcdefg"]
    found = texts.find_or_insert(texts.rows([pa.array(given_keys)]), np.zeros(len(given_keys), np.uint16))
    assert len(set(found.slots.tolist())) == len(given_keys)
    assert texts.keys_of(found.slots)[0].to_pylist() == given_keys


@given(texts=st.lists(st.binary(max_size=70), max_size=12), length=st.integers(1, 70))
@settings(max_examples=300, deadline=None)
def test_a_strings_hash_does_not_depend_on_its_neighbours(texts: list[bytes], length: int) -> None:
    column = table_keys.key_column(pa.binary())
    texts += [text[:length].ljust(length, b"\xff") for text in texts]
    together = column.rows(pa.array(texts, pa.binary())).hashed(None).tolist()
    assert together == [int(column.rows(pa.array([text], pa.binary())).hashed(None)[0]) for text in texts]
    assert len(set(together)) == len(set(texts))


def test_a_released_snapshot_ends_early_and_costs_nothing_more() -> None:
    model = Model("integers")
    model.fold(list(range(500)), [1] * 500)
    taken = model.backend.snapshot()
    parts = taken.encode()
    next(parts)
    taken.discard()
    assert list(parts) == []
    model.fold(list(range(500)), [1] * 500)
    assert not model.table._views


def test_state_that_nobody_asked_for_is_written_again_as_it_was() -> None:
    model = Model("strings")
    model.fold(list(range(100)), [1] * 100)
    parts = whole(model.backend.snapshot())
    backend = ColumnarStateBackend()
    for part in parts:
        backend.restore("op", "state", part, range(GROUPS))
    again = backend.snapshot()
    assert [s.kind for s in again.schemas] == ["columns"]
    parts = whole(again)
    assert restored("strings", parts, 2) == model.expected


def test_a_snapshot_is_written_by_another_thread_while_every_key_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # blocks of their real size: copies without the interpreter's lock
    keys, rows = 300_000, 5_000
    schema = pa.schema([("k", pa.int64())])
    backend = ColumnarStateBackend()
    table = backend.table("op", "state", schema, VALUES)
    random = np.random.default_rng(0)

    def fold(numbers: Any, value: int) -> None:
        slots = table.find_or_insert(table.rows([pa.array(numbers)]), (numbers % GROUPS).astype(np.uint16)).slots
        table.touch(slots)
        np.add.at(table.values[0], slots, value)
        table.values[1][slots] = value
        table.after_write(slots, [0, 1])

    for start in range(0, keys, rows):
        fold(np.arange(start, start + rows), 1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for nth in range(3):
            before = dict(
                zip(
                    *(
                        a[: table.slots_end].tolist()
                        for a in (table.keys_of(table.live_slots())[0].to_numpy(), table.values[0])
                    )
                )
            )
            parts: list[bytes] = []
            taken = backend.snapshot()
            writer = Thread(target=lambda t=taken, p=parts: p.extend(b"".join(e.parts) for e in t.encode()))
            writer.start()
            while writer.is_alive():
                fold(random.integers(0, keys + 1000 * nth, rows), nth + 2)
            writer.join()
            found: dict[Any, Any] = {}
            for part in parts:
                with pa.ipc.open_stream(part) as reader:
                    for batch in reader:
                        found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()))
            assert found == before
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("kind", KINDS)
def test_two_keys_of_one_hash_are_two_keys(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def poor(hashes: Any, words: Any) -> Any:
        return words.view(np.uint64) % np.uint64(3)

    monkeypatch.setattr(table_keys, "mixed", poor)
    random = Random(kind)
    model = Model(kind)
    for _ in range(12):
        model.fold([random.randrange(150) for _ in range(200)], [1] * 200)
        model.remove(random, 0.4)
        model.check()
