"""Tests the stores that there are, each by the conformance suite and by what can go wrong with it alone."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from penstock.storage.local import TEMPORARY_FOLDER, LocalStore
from penstock.storage.location import local_path
from penstock.storage.memory import MemoryStore
from penstock.storage.opening import open_store, probe
from penstock.storage.store import ObjectMissing, ObjectStore, StoreError
from tests.unit.storage.conformance import BrowsableConformance, StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestLocalStore(BrowsableConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "job", create_root=True)


class TestLocalStoreWithoutSync(BrowsableConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "job", create_root=True, fsync=False)


def test_memory_has_a_limit_and_says_what_to_do() -> None:
    store = MemoryStore(bytes_max=10)
    store.put("a", [b"12345"])
    with pytest.raises(StoreError, match=r"b \(6 bytes\).* 5 of at most 10 bytes.*execution.checkpointing.dir"):
        store.put("b", [b"123456"])
    store.put("b", [b"12345"])
    store.delete("a")
    store.create("c", b"12345")
    assert store.used_bytes == 10


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "not writable"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_write_that_fails_is_explained_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    store = LocalStore(tmp_path)
    written: list[int] = []

    def fail_after_some_bytes(descriptor: int, buffers: list[memoryview]) -> int:
        if written:
            raise OSError(number, os.strerror(number))
        written.append(os.write(descriptor, bytes(buffers[0])[:3]))
        return written[0]

    monkeypatch.setattr(os, "writev", fail_after_some_bytes)
    with pytest.raises(StoreError, match=message) as caught:
        store.put("shared/segment", [b"12345", b"678"])
    assert "shared/segment" in str(caught.value)
    written.clear()
    growing = store.writer("shared/growing")
    with pytest.raises(StoreError, match=message):
        growing.write([b"12345"])
    growing.abort()
    written.clear()
    with pytest.raises(StoreError, match=message):
        store.create("log/1", b"12345")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "writev", lambda fd, buffers: os.write(fd, b"".join(map(bytes, buffers))[:4]))
    store.put("a", [b"123", b"", b"45678", b"9", b"0"])
    assert store.get("a") == b"1234567890"


def test_large_writes_are_made_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, sizes, writev = LocalStore(tmp_path), [], os.writev

    def counted(descriptor: int, buffers: list[memoryview]) -> int:
        sizes.append(sum(map(len, buffers)))
        return writev(descriptor, buffers)

    monkeypatch.setattr(os, "writev", counted)
    parts = [os.urandom(1_300_000), b"", os.urandom(7), os.urandom(400_000), os.urandom(300_000)]
    store.put("a", parts)
    assert store.get("a") == b"".join(parts)
    assert max(sizes) <= 512 * 1024 and len(sizes) < 6


def test_a_crash_before_the_link_leaves_the_name_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "link", crash)
        store.create("log/0", b"half")
    with pytest.raises(ObjectMissing):
        store.get("log/0")
    store.create("log/0", b"whole")
    assert store.get("log/0") == b"whole"


def test_an_object_is_never_seen_half_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    seen: list[list[str]] = []
    link = os.link

    def look_and_link(source: str, target: str) -> None:
        seen.append(store.list(""))
        link(source, target)

    monkeypatch.setattr(os, "link", look_and_link)
    store.create("log/0", b"x" * 100_000)
    assert seen and not any(seen)
    assert store.list("") == ["log/0"]


def test_what_a_killed_process_left_is_swept_after_its_grace_time(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("log/0", b"x")
    old, new = tmp_path / TEMPORARY_FOLDER / "old", tmp_path / TEMPORARY_FOLDER / "new"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (0, 0))
    open_store(str(tmp_path), create_root=True)
    assert new.exists() and not old.exists()
    assert store.list("") == ["log/0"]


def test_a_removed_root_is_named_and_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "job"
    store = LocalStore(root, create_root=True)
    store.put("shared/a", [b"x"])
    shutil.rmtree(root)
    for call in (
        lambda: store.put("shared/b", [b"x"]),
        lambda: store.create("log/0", b"x"),
        lambda: store.get("shared/a"),
        lambda: store.size("shared/a"),
        lambda: store.list(""),
        lambda: store.list("shared"),
    ):
        with pytest.raises(StoreError, match="job has been removed while it is in use"):
            call()
    store.delete("shared/a")
    assert not root.exists()


def test_only_who_creates_the_root_may_find_it_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="share"):
        LocalStore(tmp_path / "job")
    LocalStore(tmp_path / "a" / "job", create_root=True)
    LocalStore(tmp_path / "a" / "job")


def test_a_root_that_is_a_file_or_below_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="not a directory|a file"):
        LocalStore(tmp_path / "file", create_root=True)
    with pytest.raises(StoreError, match="is a file, not a directory"):
        LocalStore(tmp_path / "file" / "job", create_root=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_not_writable(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="not writable for user"):
            store.put("shared/a", [b"x"])
    finally:
        tmp_path.chmod(0o700)


class ForgetfulStore(MemoryStore):
    """Ignores the condition, as some object stores do."""

    def create(self, path: str, data: bytes) -> None:
        self.delete(path)
        super().create(path, data)


def test_a_store_that_lets_a_second_creation_pass_is_refused() -> None:
    store = ForgetfulStore()
    with pytest.raises(StoreError, match="exactly-once is refused"):
        probe(store)
    assert store.list("") == []


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/tmp/x", "/tmp/x"),
        ("relative/x", "relative/x"),
        ("file:///tmp/x", "/tmp/x"),
        ("file:/tmp/x", "/tmp/x"),
        ("file://localhost/tmp/x%20y", "/tmp/x y"),
        ("FILE:///tmp/x", "/tmp/x"),
        ("file:///tmp/day-?.txt", "/tmp/day-?.txt"),
        ("file:///tmp/a#1/b%231", "/tmp/a#1/b#1"),
        ("file:///tmp/100%", "/tmp/100%"),
        ("/tmp/x%20y", "/tmp/x%20y"),
        ("./a:b", "./a:b"),
        ("10:30.csv", "10:30.csv"),
        ("rates:2026.csv", "rates:2026.csv"),
        ("//[x", "//[x"),
    ],
)
def test_paths_and_file_uris(uri: str, path: str) -> None:
    assert local_path(uri) == path


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://host/x", "ftp://.*file://.*s3://"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", r"^s3://…: .*s3.access-key"),
        ("s3://bucket/a/../x", "dotted parts"),
        ("file://host/x", "host 'host'"),
        ("file:x", "absolute"),
        ("file://[x", r"host '\[x'"),
        ("s3:bucket/x", "s3:// is not supported here"),
    ],
)
def test_other_schemes_are_refused_by_name(uri: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_store(uri)


def test_creation_is_exclusive_between_two_store_objects(tmp_path: Path) -> None:
    stores = [LocalStore(tmp_path) for _ in range(4)]
    outcomes: list[str] = []

    def create(store: LocalStore) -> None:
        try:
            store.create("log/0", b"x")
            outcomes.append("won")
        except StoreError:
            outcomes.append("lost")

    threads = [threading.Thread(target=create, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(outcomes) == ["lost", "lost", "lost", "won"]


def test_links_are_folders_where_they_are_asked_for_and_lead_to_one_that_can_be_seen(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x")
    store = LocalStore(tmp_path / "store", create_root=True)
    (tmp_path / "store" / "a").mkdir()
    for name, target in {"b": elsewhere, "c": tmp_path / "file", "d": tmp_path / "none", ".e": elsewhere}.items():
        (tmp_path / "store" / name).symlink_to(target)
    (tmp_path / "store" / "f").symlink_to("f")  # to look at it is an error, as in a folder that nobody may enter
    assert store.folders("") == ["a", "b"]
    assert store.folders("", with_links=False) == ["a"]
