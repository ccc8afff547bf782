"""Tests columnar state, wherever it is kept, against a dict: rows, removals, windows, checkpoints that name what has
not changed, and restores into memory.
"""

from __future__ import annotations

import copy
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.values.metadata import Segment
from penstock.state import state_sizes
from penstock.state.backend import EncodedState, RestoringSubtask, StateSchemaError, StateSnapshot, StoredState
from penstock.state.codecs import read_stream
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarStateBackend
from penstock.state.rocksdb import disk_column_table
from tests.properties.columnar_backends import KINDS as BACKENDS
from tests.properties.columnar_backends import ColumnarBackends
from tests.properties.test_columnar_state import GROUPS, KINDS, VALUES, group_of, key_of, rows_of, small_blocks

Content = dict[str, dict[Any, tuple[int, int, float]]]
"""By state and key: (key group, sum, most)"""

SIZE = 10
WINDOWS = "windows"
EVERYTHING = range(GROUPS)


def schema_of(name: str) -> pa.Schema:
    if name == WINDOWS:
        return pa.schema([("key", pa.string()), ("start", pa.int64())])
    return pa.schema([(f"k{i}", t) for i, t in enumerate(KINDS[name])])


def key_in(name: str, number: int) -> tuple[Any, ...]:
    if name != WINDOWS:
        return key_of(name, number)
    starts = [-(2**63), -SIZE, 0, SIZE, 2**62, 2**63 - 1]
    return ("x" * (number % 5), starts[number % len(starts)])


class Subtask:
    """A backend with a state of each kind of key, and what should be in it."""

    def __init__(self, backend: Any, names: list[str], content: Content) -> None:
        self.backend = backend
        self.content = content
        self.tables = {n: backend.table("op", n, schema_of(n), VALUES, windowed=n == WINDOWS) for n in names}

    def fold(self, name: str, numbers: list[int], values: list[int]) -> None:
        table, expected = self.tables[name], self.content[name]
        keys = [key_in(name, n) for n in numbers]
        groups = np.array([group_of(zlib.crc32(repr(key).encode())) for key in keys], np.uint16)
        columns = [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(schema_of(name))]
        slots = table.find_or_insert(table.rows(columns), groups).slots
        table.touch(slots)
        sums, most = table.values
        np.add.at(sums, slots, np.array(values))
        np.maximum.at(most, slots, np.array(values, np.float64))
        table.after_write(slots, [0, 1])
        table.settle()
        for key, group, value in zip(keys, groups.tolist(), values):
            _, before, greatest = expected.get(key, (0, 0, -np.inf))
            expected[key] = (group, before + value, max(greatest, value))

    def remove(self, name: str, numbers: list[int]) -> None:
        """Removes keys that are there."""
        table, expected = self.tables[name], self.content[name]
        keys = [key for key in {key_in(name, n) for n in numbers} if key in expected]
        if keys:
            groups = np.array([expected.pop(key)[0] for key in keys], np.uint16)
            columns = [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(schema_of(name))]
            table.remove(table.find_or_insert(table.rows(columns), groups).slots)

    def fire(self, start: int, removes: bool) -> None:
        """Reads a window in groups, and removes it; else changes it."""
        table, expected = self.tables[WINDOWS], self.content[WINDOWS]
        assert set(table.starts()) == {key[1] for key in expected}
        found: dict[Any, tuple[int, int, float]] = {}
        for slots in table.slots_of_window(start, 2):
            assert 0 < len(slots) <= 2
            values = zip(table.key_groups_of(slots).tolist(), *(v[slots].tolist() for v in table.values))
            found |= dict(zip(rows_of(table.keys_of(slots)), values))
            if removes:
                table.remove(slots)
            else:
                table.touch(slots)
                table.values[0][slots] += 1
                table.after_write(slots, [0])
                table.settle()
        assert found == {key: value for key, value in expected.items() if key[1] == start}
        for key, (group, total, most) in found.items():
            if removes:
                del expected[key]
            else:
                expected[key] = (group, total + 1, most)


@dataclass
class Checkpoint:
    number: int
    snapshot: StateSnapshot
    expected: Content
    predecessor: Checkpoint | None
    ranges: list[StoredState] = field(default_factory=list)
    segment: Segment = field(default_factory=lambda: Segment("", 0))


class Store:
    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def write(self, checkpoint: Checkpoint) -> None:
        path, data = f"segment-{checkpoint.number}", b""
        for run in checkpoint.snapshot.encode():
            if isinstance(run, EncodedState):
                part = b"".join(bytes(p) for p in run.parts)
                offset, data = len(data), data + part
                run = StoredState(
                    run.operator,
                    run.name,
                    run.entries,
                    Segment(path, 0),
                    offset,
                    len(part),
                    zlib.crc32(part),
                    run.bounds,
                )
            else:
                assert checkpoint.predecessor is not None and run in checkpoint.predecessor.ranges
            checkpoint.ranges.append(run)
        checkpoint.segment = Segment(path, len(data))
        self.data[path] = data

        self.check_that_runs_do_not_overlap(checkpoint)

    def check_that_runs_do_not_overlap(self, checkpoint: Checkpoint) -> None:
        """Check that in one segment no key comes twice, unless nobody has asked for its restored state yet."""
        seen: set[Any] = set()
        untouched = checkpoint.predecessor is not None and checkpoint.expected is checkpoint.predecessor.expected
        for run in checkpoint.ranges:
            if run.segment.path == checkpoint.segment.path and not untouched:
                data = self.data[run.segment.path][run.offset : run.offset + run.length_bytes]
                for batch in read_stream(data, EVERYTHING).batches:
                    keys = [batch.column(c).to_pylist() for c in range(len(schema_of(run.name)))]
                    found = {(run.name, *key) for key in zip(*keys)}
                    assert len(found) == batch.num_rows and not seen & found
                    seen |= found

    def restore(self, checkpoint: Checkpoint, backend: Any, key_groups: range = EVERYTHING) -> None:
        for schema in checkpoint.snapshot.schemas:
            backend.restore_schema(schema)
        for run in checkpoint.ranges:
            data = self.data[run.segment.path][run.offset : run.offset + run.length_bytes]
            backend.restore(run.operator, run.name, data, key_groups)

    def restore_lazily(self, checkpoint: Checkpoint, backend: Any, apart: deque[Callable[[], None]]) -> int:
        """Restore as a subtask does from its own checkpoint; return how many runs come later, by what is in `apart`."""

        def read(run: StoredState) -> bytes:
            return self.data[run.segment.path][run.offset : run.offset + run.length_bytes]

        backend.on_restored(checkpoint.number, checkpoint.ranges)
        runs = tuple(checkpoint.ranges)
        lazily = backend.restore_copy(RestoringSubtask(None, EVERYTHING, "", runs, read, apart.append))
        for schema in checkpoint.snapshot.schemas:
            backend.restore_schema(schema)
        for run in runs:
            if run not in lazily:
                backend.restore(run.operator, run.name, read(run), EVERYTHING)
        return len(lazily)

    def content(self, checkpoint: Checkpoint, names: list[str], parts: list[range]) -> Content:
        """Return what memory has after a restore, as several subtasks do it."""
        found: Content = {name: {} for name in names}
        for key_groups in parts:
            backend = ColumnarStateBackend()
            self.restore(checkpoint, backend, key_groups)
            for name in names:
                table = backend.table("op", name, schema_of(name), VALUES)
                live = table.live_slots()
                groups = table.key_groups_of(live).tolist()
                assert all(group in key_groups for group in groups)
                values = zip(groups, *(v[live].tolist() for v in table.values))
                found[name] |= dict(zip(rows_of(table.keys_of(live)), values))
        return found


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_what_checkpoints_restore_to_is_what_was_there_at_the_barrier(
    backend: str, incremental: bool, seed: int
) -> None:
    random = Random(seed)
    names = random.sample(sorted(KINDS), 2) + [WINDOWS]
    space = random.choice([6, 60, 600])
    store, number = Store(), 0
    running: list[Checkpoint] = []
    completed: Checkpoint | None = None
    apart: deque[Callable[[], None]] = deque()
    # With such small ranges, restored state is loaded in several parts.
    with ColumnarBackends(backend, incremental, range_bytes=256) as backends:
        subtask = Subtask(backends.new(), names, {name: {} for name in names})
        for _ in range(random.randrange(10, 60)):
            name, count = random.choice(names), random.choice([1, 3, 50])
            numbers = [random.randrange(space) for _ in range(count)]
            match random.choice(
                ("fold", "fold", "fold", "remove", "fire", "take", "store", "store", "give up", "fail", "load")
            ):
                case "fold":
                    subtask.fold(name, numbers, [random.randrange(-9, 9) for _ in numbers])
                case "remove":
                    subtask.remove(name, numbers)
                case "fire" if backend != "memory" and subtask.content[WINDOWS]:
                    subtask.fire(random.choice(sorted(subtask.content[WINDOWS]))[1], random.random() < 0.5)
                case "take" if len(running) < 3:
                    number += 1
                    before = completed if random.random() < 0.9 else None
                    taken = subtask.backend.snapshot(number, None if before is None else before.number)
                    running.append(Checkpoint(number, taken, copy.deepcopy(subtask.content), before))
                case "store" if running:
                    checkpoint = running.pop(0)
                    store.write(checkpoint)
                    assert store.content(checkpoint, names, [range(5), range(5, GROUPS)]) == checkpoint.expected
                    # Segments that are not worth naming: the checkpoint's own, or an older one.
                    own, ranges = checkpoint.segment.path, checkpoint.ranges
                    left_out = random.choice(["", "", "", own, ranges[0].segment.path if ranges else ""])
                    checkpoint.snapshot.on_stored([r for r in ranges if r.segment.path != left_out])
                    completed = checkpoint if random.random() < 0.8 else completed
                case "load" if apart:
                    apart.popleft()()
                case "give up" if running:
                    running.pop(random.randrange(len(running))).snapshot.discard()
                case "fail" if completed is not None:
                    backends.close()
                    running.clear()
                    again = backends.new()
                    while apart:
                        apart.popleft()()  # what is left of the generation that has ended
                    if random.random() < 0.7:
                        store.restore_lazily(completed, again, apart)
                    else:
                        store.restore(completed, again)
                    if random.random() < 0.3:  # before the operators have asked for their state
                        number += 1
                        untouched = Checkpoint(
                            number, again.snapshot(number, completed.number), completed.expected, completed
                        )
                        store.write(untouched)
                        assert store.content(untouched, names, [EVERYTHING]) == untouched.expected
                        untouched.snapshot.on_stored(untouched.ranges)
                        completed = untouched
                    subtask = Subtask(again, names, copy.deepcopy(completed.expected))
        number += 1
        last = Checkpoint(number, subtask.backend.snapshot(number, None), subtask.content, None)
        store.write(last)
        assert store.content(last, names, [EVERYTHING]) == subtask.content


@pytest.mark.parametrize("backend", ["rocksdb", "rocksdb-without-cache"])
def test_columns_are_loaded_when_they_are_asked_for(backend: str) -> None:
    names = ["strings", WINDOWS]
    apart: deque[Callable[[], None]] = deque()
    with ColumnarBackends(backend, incremental=True, range_bytes=256) as backends:
        subtask, store = Subtask(backends.new(), names, {name: {} for name in names}), Store()
        for name in names:
            subtask.fold(name, list(range(200)), [1] * 200)
        first = Checkpoint(1, subtask.backend.snapshot(1, None), copy.deepcopy(subtask.content), None)
        store.write(first)
        backends.close()
        again = backends.new()
        assert store.restore_lazily(first, again, apart) == len(first.ranges) > 20
        subtask = Subtask(again, names, copy.deepcopy(first.expected))
        assert apart, "most of it comes later"
        subtask.fold("strings", [3, 500, 198], [5, 6, 7])
        subtask.remove("strings", [100, 101])
        subtask.fire(SIZE, removes=True)
        second = Checkpoint(2, again.snapshot(2, 1), copy.deepcopy(subtask.content), first)
        savepoint = Checkpoint(3, again.snapshot(3, None), copy.deepcopy(subtask.content), first)
        subtask.fold("strings", list(range(50)), [9] * 50)
        for checkpoint in (second, savepoint):
            store.write(checkpoint)
            assert store.content(checkpoint, names, [EVERYTHING]) == checkpoint.expected
        while apart:
            apart.popleft()()
        last = Checkpoint(4, again.snapshot(4, None), subtask.content, None)
        store.write(last)
        assert store.content(last, names, [EVERYTHING]) == subtask.content


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_checkpoint_stores_the_keys_that_have_changed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    name = "strings"
    with ColumnarBackends(backend, incremental=True) as backends:
        subtask, store = Subtask(backends.new(), [name], {name: {}}), Store()
        subtask.fold(name, list(range(1000)), [1] * 1000)
        before = None
        for number, stored in ((1, [1000]), (2, [1000]), (3, [1000, 5, 10]), (4, [1000, 5, 10])):
            if number == 3:
                subtask.fold(name, list(range(10)), [1] * 10)
                subtask.remove(name, list(range(20, 25)))
            taken = subtask.backend.snapshot(number, number - 1 if before else None)
            checkpoint = Checkpoint(number, taken, copy.deepcopy(subtask.content), before)
            store.write(checkpoint)
            taken.on_stored(checkpoint.ranges)
            assert sorted(run.entries for run in checkpoint.ranges) == sorted(stored)
            assert store.content(checkpoint, [name], [EVERYTHING]) == checkpoint.expected
            before = checkpoint


__all__ = ["small_blocks"]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show with hundreds of keys what happens with millions."""
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 7)
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 1000)
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", 200)
    monkeypatch.setattr(disk_column_table, "_CHANGED_SLOTS_MAX", 20)


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_of_other_columns_is_refused_by_name(backend: str) -> None:
    with ColumnarBackends(backend) as backends:
        subtask = Subtask(backends.new(), ["integers"], {"integers": {}})
        subtask.fold("integers", [1], [1])
        store, taken = Store(), Checkpoint(1, subtask.backend.snapshot(1, None), {}, None)
        store.write(taken)
        again = backends.new()
        store.restore(taken, again)
        with pytest.raises(
            StateSchemaError, match="state 'integers' of operator 'Sums' is declared as columns state of .*sum float"
        ):
            again.table("op", "integers", schema_of("integers"), [ValueColumn("sum", np.float64, 0.0), VALUES[1]])
