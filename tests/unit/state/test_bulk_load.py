"""Restores runs into RocksDB: sorted ones go by files, and the newest entry of a key counts in any order of runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.backend import EncodedState, StateError
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb import bulk_load
from penstock.state.rocksdb.bulk_load import BulkLoad
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings

PREFIX = b"\0\0"
LONG = ValueStateDescriptor("count", Types.LONG())
KEY_GROUPS = 16


@pytest.fixture
def settings(tmp_path: Path) -> RocksDBSettings:
    return RocksDBSettings((str(tmp_path),), 2**23)


@pytest.fixture
def database(settings: RocksDBSettings) -> Iterator[Database]:
    made = Database(settings, "a test")
    made.begin(PREFIX)
    yield made
    made.close()


def _key(number: int) -> bytes:
    return PREFIX + number.to_bytes(4, "big")


def _in_files(database: Database) -> int:
    return sum(file["num_entries"] for file in database._db.live_files())


def test_sorted_entries_are_taken_over_as_files(database: Database) -> None:
    load = BulkLoad(database, "load")
    numbers = range(20_000)
    for at in range(0, len(numbers), 1000):
        part = numbers[at : at + 1000]
        load.put([_key(n) for n in part], [b"%d" % n for n in part])
    load.finish()
    assert _in_files(database) == len(numbers)
    assert [*database.scan(PREFIX)] == [(_key(n), b"%d" % n) for n in numbers]
    assert not [*database.directory.path.glob("load-*")]


def test_a_few_entries_make_no_file(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # The database's own files tell nothing: RocksDB may write the mark of a prefix to one at any time.
    monkeypatch.setattr(bulk_load, "SortedFile", None)
    load = BulkLoad(database, "load")
    load.put([_key(1), _key(2)], [b"a", b"b"])
    load.finish()
    assert [*database.scan(PREFIX)] == [(_key(1), b"a"), (_key(2), b"b")]


@pytest.mark.parametrize("seed", range(20))
def test_later_runs_override_earlier_ones(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_load, "_FILE_ENTRIES_MIN", 5)
    monkeypatch.setattr(bulk_load, "_FILE_BYTES", 1)
    draw = random.Random(seed)
    load = BulkLoad(database, "load")
    expected: dict[bytes, bytes] = {}
    for step in range(60):
        low = draw.randrange(200)
        numbers = draw.sample(range(low, 220), draw.randint(0, min(20, 220 - low)))
        if draw.random() < 0.7:
            numbers.sort()
        keys = [_key(number) for number in numbers]
        if keys and draw.random() < 0.3:
            load.delete(keys)
            for key in keys:
                expected.pop(key, None)
        else:
            values = [b"%d of %d" % (number, step) for number in numbers]
            load.put(keys, values)
            expected.update(zip(keys, values))
    load.finish()
    assert dict(database.scan(PREFIX)) == expected


def test_a_disk_that_does_not_take_a_file_is_named(database: Database) -> None:
    (database.directory.path / "load-1").mkdir()
    load = BulkLoad(database, "load")
    numbers = range(5000)
    with pytest.raises(StateError, match="cannot take what is being restored"):
        load.put([_key(n) for n in numbers], [b""] * len(numbers))


def _run(settings: RocksDBSettings, keys: list[object]) -> list[EncodedState]:
    backend = RocksDBStateBackend(KEY_GROUPS, settings=settings)
    try:
        handle = backend.state("op", LONG)
        for at, key in enumerate(keys):
            backend.set_current_key(key, 3 + at % 7)
            handle.update(at)
        return [run for run in backend.snapshot(1).encode() if isinstance(run, EncodedState)]
    finally:
        backend.revoke()


def test_runs_of_rocksdb_say_which_keys_they_have(settings: RocksDBSettings) -> None:
    (run,) = _run(settings, ["b", "a", "c"])
    bounds = run.bounds
    assert bounds is not None and (bounds.first_group, bounds.last_group) == (3, 5)
    assert bounds.first.startswith(b"\0\3s") and bounds.first.endswith(b"b")
    assert bounds.last.startswith(b"\0\5s") and bounds.last.endswith(b"c")
    assert bounds.has_some_of(range(5, 9)) and bounds.has_some_of(range(4))
    assert not bounds.has_some_of(range(6, 9)) and not bounds.has_some_of(range(3))


def test_a_long_key_is_not_kept_in_the_metadata(settings: RocksDBSettings) -> None:
    (run,) = _run(settings, ["a", "b" * 300])
    assert run.bounds is None


def test_a_run_of_the_hash_map_backend_has_no_bounds() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    backend.set_current_key("a", 3)
    backend.state("op", LONG).update(1)
    (run,) = backend.snapshot(1).encode()
    assert run.bounds is None
