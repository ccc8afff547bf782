"""Tests what RocksDB's disk does to a job: writes that have to wait, a full disk, too little room for a restore."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.backend import StateError
from penstock.state.rocksdb.claimed_room import claim, release
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.storage.local_directory import LocalDirectory
from tests.unit.state.backends import KEY_GROUPS, NAMES, encoded, restored_into

TEXT = ValueStateDescriptor("text", Types.STRING())


def small(directory: Path, write_buffer_bytes: int = 64 * 1024) -> RocksDBStateBackend:
    """Return a backend that has to flush all the time."""
    settings = RocksDBSettings(
        (str(directory),),
        memory_bytes=2**23,
        write_buffer_bytes=write_buffer_bytes,
        batch_bytes=2**15,
        cached_bytes=2**15,
        compression="none",
    )
    return RocksDBStateBackend(KEY_GROUPS, NAMES, settings=settings)


def write(backend: RocksDBStateBackend, keys: int) -> None:
    handle = backend.state("op", TEXT)
    for key in range(keys):
        backend.set_current_key(key, key % KEY_GROUPS)
        handle.update(f"{key:>500}")
        backend.settle()


def test_writes_that_have_to_wait_are_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Database] = []
    wait = Database._wait_for_room

    def counted(self: Database) -> None:
        waits.append(self)
        wait(self)

    monkeypatch.setattr(Database, "_wait_for_room", counted)
    backend = small(tmp_path)
    try:
        write(backend, 20_000)
        assert waits, "with such small buffers RocksDB refuses some writes at first"
        assert sum(state.entries for state in encoded(backend)) == 20_000
        handle = backend.state("op", TEXT)
        for key in range(0, 20_000, 997):
            backend.set_current_key(key, key % KEY_GROUPS)
            assert handle.value() == f"{key:>500}"
    finally:
        backend.revoke()


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_named_with_its_room_and_leaves_nothing_behind(tmp_path: Path) -> None:
    backend = small(tmp_path)
    with files_of_at_most(20_000):
        with pytest.raises(StateError) as raised:
            write(backend, 20_000)
        backend.revoke()
    told = str(raised.value)
    assert told.startswith(f"the RocksDB of operator 'Counter' in {tmp_path}/penstock-state-")
    assert "the job restarts from its newest checkpoint" in told
    assert f"The disk of {tmp_path} has " in told and "state.backend.rocksdb.localdir" in told
    assert not list(tmp_path.iterdir())
    again = small(tmp_path)
    write(again, 1000)
    assert sum(state.entries for state in encoded(again)) == 1000
    again.revoke()


def test_a_disk_that_is_full_while_state_is_restored_is_named(tmp_path: Path) -> None:
    first = small(tmp_path)
    write(first, 1000)
    states = encoded(first)
    first.revoke()
    second = small(tmp_path)
    with files_of_at_most(100_000), pytest.raises(StateError, match=r"cannot take what is being restored: .*localdir"):
        restored_into(lambda: second, states)
    second.revoke()


def test_too_little_room_for_a_restore_is_reported_before_it_begins(tmp_path: Path) -> None:
    backend = small(tmp_path)
    backend.check_room(1000)
    with pytest.raises(
        StateError,
        match=r"state that operator 'Counter' restores takes at least 1073741824.0 MB in RocksDB\. The disk of .* has "
        r".* free of .*: make room there, or name directories of a larger disk with state\.backend\.rocksdb\.localdir",
    ):
        backend.check_room(2**50)
    backend.revoke()


def test_two_subtasks_that_need_most_of_the_room_each_are_refused_before_they_restore(tmp_path: Path) -> None:
    first, second = small(tmp_path), small(tmp_path)
    most = int(shutil.disk_usage(tmp_path).free * 0.6)
    first.check_room(most)
    needs = rf"takes at least {most / 2**20:.1f} MB in RocksDB, and that of other subtasks of its slot .* MB more\. The"
    with pytest.raises(StateError, match=needs):
        second.check_room(most)
    first.revoke()
    second.check_room(most)
    second.snapshot()  # it has restored its state
    third = small(tmp_path)
    third.check_room(most)
    for backend in (second, third):
        backend.revoke()


def test_what_a_subtask_has_restored_counts_once(tmp_path: Path) -> None:
    """It is not free any more, so it must not be kept free for it."""
    first, second = (LocalDirectory([str(tmp_path)]) for _ in range(2))
    (first.path / "before").write_bytes(bytes(1000))
    assert claim(first, 10_000)[1] == 0
    assert claim(second, 500)[1] == 10_000
    (first.path / "restored").write_bytes(bytes(6000))
    assert claim(second, 500)[1] == 4000
    (first.path / "compacted").write_bytes(bytes(60_000))
    assert claim(second, 500)[1] == 0
    assert claim(first, 10_000)[1] == 500, "a claim replaces the one before"
    release(second)
    assert claim(first, 10_000)[1] == 0
    for directory in (first, second):
        release(directory)
        directory.delete()
