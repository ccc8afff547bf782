"""Tests what is on disk when a call of the local store returns, seen from the calls of fsync that it made."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.jobmaster.job_directory import execute
from penstock.protocol.log.log_operations import AppendEntry, Done
from penstock.protocol.values.log_entries import Fence
from penstock.storage.local import TEMPORARY_FOLDER, LocalStore
from penstock.storage.log import read_entry


class Disk:
    """Records what a crash of the machine would leave: per file the bytes, per folder the names at its last fsync."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._bytes: dict[int, int] = {}
        self._names: dict[int, set[str]] = {}
        fsync = os.fsync

        def recorded(descriptor: int) -> None:
            fsync(descriptor)
            found = os.fstat(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if os.path.isdir(path):
                self._names[found.st_ino] = set(os.listdir(path))
            else:
                self._bytes[found.st_ino] = found.st_size

        monkeypatch.setattr(os, "fsync", recorded)

    def survives(self, path: str) -> bool:
        """Return whether the object would be there, whole, after a crash now."""
        target = self._root / path
        found = target.stat()
        if self._bytes.get(found.st_ino) != found.st_size:
            return False
        while target != self._root:
            if target.name not in self._names.get(target.parent.stat().st_ino, set()):
                return False
            target = target.parent
        return True


def put(store: LocalStore) -> None:
    store.put("shared/segment", [b"123", b"4567"])


def grow(store: LocalStore) -> None:
    writer = store.writer("shared/segment")
    writer.write([b"123"])
    writer.write([b"4567"])
    writer.finish()


def create(store: LocalStore) -> None:
    store.create("shared/segment", b"1234567")


@pytest.mark.parametrize("write", [put, grow, create])
def test_an_object_survives_a_crash_of_the_machine_as_soon_as_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[LocalStore], None]
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    write(LocalStore(tmp_path))
    assert disk.survives("shared/segment")


def test_an_object_is_whole_on_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync, link = os.fsync, os.link

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def linked(source: Path, target: Path) -> None:
        assert os.stat(source).st_ino in synced, "linked before it is durable: a crash leaves an empty entry"
        link(source, target)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(os, "link", linked)
    LocalStore(tmp_path).create("log/1", b"entry")


def test_without_fsync_nothing_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    put(LocalStore(tmp_path, fsync=False))
    assert not disk.survives("shared/segment")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_an_entry_that_was_linked_is_created_though_its_temporary_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Said to be refused, it would be taken for another driver's when the next one meets it in its place."""
    unlink = Path.unlink

    def refuses(self: Path, missing_ok: bool = False) -> None:
        if self.parent.name == TEMPORARY_FOLDER:
            raise OSError(number, os.strerror(number))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)
    store = LocalStore(tmp_path)
    fence = Fence(0, "one", 0, "host", 7)
    assert execute(store, AppendEntry(fence)) == Done()
    assert read_entry(store, 0) == fence
    monkeypatch.setattr(Path, "unlink", unlink)
    store.sweep_temporary(grace_s=-1.0)
    assert not any((tmp_path / TEMPORARY_FOLDER).iterdir())
