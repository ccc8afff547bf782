"""Tests what only RocksDB's backend does: keys, its directories, what is damaged or missing, memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.values.key_encoding import encode
from penstock.protocol.values.metadata import Segment
from penstock.state.backend import EncodedState, StateError, StoredState
from penstock.state.choice import row_backend
from penstock.state.rocksdb.database import Batch, Database
from penstock.state.rocksdb.disk_table import NOTED_BYTES_MAX
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings, local_directories
from penstock.storage.local_directory import LocalDirectory
from penstock.storage.store import StoreError
from tests.unit.state.backends import encoded
from tests.unit.state.stored_checkpoints import Checkpoint, Store

LONG = ValueStateDescriptor("count", Types.LONG())
KEY_GROUPS = 300


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksDBStateBackend]:
    made = RocksDBStateBackend(KEY_GROUPS, {"op": "Counter"}, settings=RocksDBSettings((str(tmp_path),), 2**23))
    yield made
    made.revoke()


@given(
    key=st.integers() | st.text() | st.binary() | st.booleans() | st.floats() | st.tuples(st.text(), st.integers()),
    key_group=st.integers(0, KEY_GROUPS - 1),
)
def test_keys_are_sorted_by_key_group_and_hold_the_canonical_encoding(
    shared_table: Any, key: Any, key_group: int
) -> None:
    assert shared_table.key_of(key_group, key) == b"\0\0" + key_group.to_bytes(2, "big") + encode(key)


@pytest.fixture(scope="module")
def shared_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = RocksDBSettings((str(tmp_path_factory.mktemp("table")),), 2**23)
    made = RocksDBStateBackend(KEY_GROUPS, {"op": "Counter"}, settings=settings)
    made.state("op", LONG)
    yield made._tables["op", "count"]
    made.revoke()


def test_what_the_rows_of_a_slice_ask_for_is_read_at_once(backend: RocksDBStateBackend) -> None:
    handle = backend.state("op", LONG)
    table = backend._tables["op", "count"]
    keys = list(range(200))
    groups = [key % KEY_GROUPS for key in keys]
    for key in keys:
        backend.set_current_key(key, groups[key])
        handle.update(key)
    backend._flush()
    for expected in (100, 0):
        table.forget_older()
        table.forget_older()
        backend.prepare(keys, groups, 0, 100)
        for key in keys[:100]:
            backend.set_current_key(key, groups[key])
            assert handle.value() == key
        assert table.loads == expected
        backend.settle()


def test_a_value_that_cannot_be_pickled_is_named_with_its_state(backend: RocksDBStateBackend) -> None:
    handle = backend.state("op", ValueStateDescriptor("gen"))
    backend.set_current_key("a", 0)
    handle.update(x for x in range(0))
    with pytest.raises(StateError, match=r"state 'gen' of operator 'Counter': the value of key 'a' cannot be pickled"):
        backend.snapshot()


def damage(backend: RocksDBStateBackend) -> None:
    """Write all that is in memory to files, and damage them."""
    backend._flush()
    backend._database._db.flush(True)
    files = list((backend._database.directory.path / "db").glob("*.sst"))
    assert files
    for file in files:
        data = bytearray(file.read_bytes())
        for at in range(50, len(data) // 2, 50):
            data[at] ^= 0xFF
        file.write_bytes(data)


def test_changed_entries_in_a_damaged_file_fail_the_subtask(tmp_path: Path) -> None:
    made = RocksDBStateBackend(KEY_GROUPS, settings=RocksDBSettings((str(tmp_path),), 2**23), incremental=True)
    handle = made.state("op", ValueStateDescriptor("text", Types.STRING()))
    made.set_current_key("a", 0)
    handle.update("a")
    first = made.snapshot(1)
    runs = [run for run in first.encode() if isinstance(run, EncodedState)]
    first.on_stored([StoredState(r.operator, r.name, r.entries, Segment("s", 99), 0, 99, 0, r.bounds) for r in runs])
    for key in range(1000):
        made.set_current_key(key, key % KEY_GROUPS)
        handle.update(f"{key} " * NOTED_BYTES_MAX)  # too long to be kept until the checkpoint
    damage(made)
    second = made.snapshot(2, 1)
    with pytest.raises(StateError, match=r"cannot be read: .*orruption"):
        list(second.encode())
    with pytest.raises(StateError, match=r"cannot be read: .*orruption"):
        made.settle()
    made.revoke()


def test_a_damaged_file_is_named_with_the_way_out(backend: RocksDBStateBackend) -> None:
    handle = backend.state("op", LONG)
    for key in range(1000):
        backend.set_current_key(key, key % KEY_GROUPS)
        handle.update(key)
    damage(backend)
    damaged = r"RocksDB of operator 'Counter' in .*orruption.*\.sst.*restarts from its newest"
    with pytest.raises(StateError, match=damaged):
        encoded(backend)
    # The snapshot writer only declines a checkpoint, so the subtask has to fail, with or without rows.
    for at_once in (backend.settle, backend.snapshot):
        with pytest.raises(StateError, match=damaged):
            at_once()
    table = backend._tables["op", "count"]
    table.forget_older()
    table.forget_older()
    with pytest.raises(StateError, match=r"cannot be read: .*orruption"):
        for key in range(1000):
            backend.set_current_key(key, key % KEY_GROUPS)
            handle.value()
    with pytest.raises(StateError, match=r"cannot be read: .*orruption"):
        table.read_ahead(range(1000), [key % KEY_GROUPS for key in range(1000)])


def test_memory_is_one_for_all_databases_of_a_process(tmp_path: Path) -> None:
    settings = RocksDBSettings((str(tmp_path),), 2**23)
    first, second = (RocksDBStateBackend(8, settings=settings) for _ in range(2))
    assert first._database._memory is second._database._memory
    first.revoke()
    second.revoke()


def test_a_database_that_nobody_closes_is_closed_before_its_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []

    def look(path: Path, **_: Any) -> None:
        written.append(any(path.rglob("*.sst")))

    gc.collect()  # databases of other tests
    database = Database(RocksDBSettings((str(tmp_path),), 2**23), "op")
    database.write(Batch([b"\0\0key"], [b"value"], []))
    database.itself = database  # type: ignore[attr-defined]  # so that only the garbage collector finds it
    monkeypatch.setattr("penstock.storage.owned_directory.shutil.rmtree", look)
    del database
    gc.collect()
    assert written == [True]


# ---- directories ----------------------------------------------------------------------------------------------------


def test_each_subtask_has_a_directory_of_its_own_and_deletes_it(tmp_path: Path) -> None:
    first, second = LocalDirectory([str(tmp_path)]), LocalDirectory([str(tmp_path)])
    assert len({first.path, second.path, *tmp_path.iterdir()}) == 2
    first.delete()
    assert list(tmp_path.iterdir()) == [second.path]
    second.delete()
    second.delete()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_leaves_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    code = (
        "import os, sys; from penstock.storage.local_directory import LocalDirectory\n"
        "made = LocalDirectory([sys.argv[1]]); (made.path / 'db').write_text('x'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    mine = LocalDirectory([str(tmp_path)])
    assert list(tmp_path.iterdir()) == [mine.path] and mine.path != left
    mine.delete()


def test_a_forked_process_of_the_user_deletes_nothing(tmp_path: Path) -> None:
    mine = LocalDirectory([str(tmp_path)])
    pid = os.fork()
    if not pid:
        mine.delete()
        os._exit(0)
    os.waitpid(pid, 0)
    assert mine.path.exists()
    mine.delete()


def test_a_directory_that_cannot_be_made_is_named_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"no directory for state can be made in .*/file/.*io\.tmp\.dirs"):
        LocalDirectory([str(tmp_path / "file" / "below")])
    named = Configuration({"state.backend.rocksdb.localdir": str(tmp_path / "file" / "below")})
    with pytest.raises(StateError, match=r"no directory for RocksDB can be made.*localdir or io\.tmp\.dirs"):
        Database(RocksDBSettings.of(named, {}), "here")


def test_where_files_lie_is_the_most_special_option_that_is_set() -> None:
    configuration = Configuration()
    assert local_directories(configuration, {"SPARK_LOCAL_DIRS": "/s1,/s2"}) == ("/s1", "/s2")
    configuration.set("io.tmp.dirs", "/t1,/t2")
    assert local_directories(configuration, {"SPARK_LOCAL_DIRS": "/s1"}) == ("/t1", "/t2")
    configuration.set("state.backend.rocksdb.localdir", "/r")
    assert local_directories(configuration, {}) == ("/r",)


def test_a_slot_without_rocksdict_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    configuration = Configuration({"state.backend.type": "rocksdb"})
    with pytest.raises(StateError, match=r"rocksdict.*pip install 'penstock\[rocksdb\]'.*wherever the slots run"):
        row_backend(configuration, 8, {})


@pytest.mark.parametrize(
    ("option", "expected"), [(None, "none"), ("SNAPPY_COMPRESSION", "snappy"), ("zstd_compression", "zstd")]
)
def test_compression_has_flinks_words(option: str | None, expected: str) -> None:
    configuration = Configuration()
    if option is not None:
        configuration.set("state.backend.rocksdb.compression.per.level", option)
    assert RocksDBSettings.of(configuration).compression == expected


def test_an_entry_that_was_only_read_is_not_stored_again(tmp_path: Path) -> None:
    """A value that the user could change counts as touched, but its pickle says that nothing has changed."""
    limits = RocksDBSettings((str(tmp_path),), memory_bytes=2**23)
    backend = RocksDBStateBackend(KEY_GROUPS, settings=limits, incremental=True)
    handle = backend.state("op", ValueStateDescriptor("object"))
    for key in range(8):
        backend.set_current_key(key, key % KEY_GROUPS)
        handle.update({"seen": [key]})
    first = Checkpoint(1, backend.snapshot(1, None), {}, None)
    store = Store()
    store.write(first)
    first.snapshot.on_stored(first.ranges)
    for key in range(8):
        backend.set_current_key(key, key % KEY_GROUPS)
        value = handle.value()
        if key == 3:
            value["seen"].append(9)
    second = Checkpoint(2, backend.snapshot(2, 1), {}, first)
    store.write(second)
    assert [run.entries for run in second.ranges] == [8, 1]
    backend.revoke()
