"""Tests HDFS that fails: answers are lost, nodes are away, start or hang, a folder is full, missing or closed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hdfs_native
import pytest

from penstock.common.configuration import Configuration
from penstock.storage.hdfs import TEMPORARY_FOLDER, HdfsStore
from penstock.storage.location import remote_location
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectExists, StoreError, StoreRefused
from penstock.storage.store_settings import StoreSettings
from tests.stores.conftest import started
from tests.stores.cutting_proxy import CuttingProxy
from tools.hdfs_servers import Hdfs, HdfsPair
from tools.object_stores import Server

pytestmark = pytest.mark.timeout(400)
QUICK = StoreSettings.of(Configuration({"penstock.checkpoint-storage.retry-timeout": "1 s"}))


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    running = started("hdfs", tmp_path_factory.mktemp("hdfs"))
    assert isinstance(running, Hdfs)
    yield running
    running.stop()


def quick(hdfs: Hdfs, **options: str) -> BrowsableStore:
    given = {"penstock.checkpoint-storage.retry-timeout": "1 s", **options}
    return open_store(hdfs.uri(uuid.uuid4().hex), StoreSettings.of(Configuration(given)), create_root=True)


class LosesAnswers:
    """A client whose first renames are executed, or not, and end with an error."""

    def __init__(self, client: Any, executes: list[bool]) -> None:
        self._client = client
        self._executes = executes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        if not self._executes:
            self._client.rename(source, target, overwrite)
            return
        if self._executes.pop(0):
            self._client.rename(source, target, overwrite)
        raise OSError("connection reset by peer")


def losing(hdfs: Server, *executes: bool) -> HdfsStore:
    place = remote_location(hdfs.uri(uuid.uuid4().hex))
    assert place is not None
    client = LosesAnswers(hdfs_native.Client(place.root), list(executes))
    store = HdfsStore(place, client, hdfs_native.WriteOptions, StoreSettings())
    store.open_root(create=True)
    return store


@pytest.mark.parametrize("executes", [(True,), (False,), (False, True), (False, False)])
def test_a_rename_whose_answer_is_lost_is_ours(hdfs: Server, executes: tuple[bool, ...]) -> None:
    store = losing(hdfs, *executes)
    store.create("log/0", b"ours")
    assert store.get("log/0") == b"ours" and store.list("") == ["log/0"]


def test_a_rename_that_was_not_executed_does_not_hide_another_creator(hdfs: Server) -> None:
    store = losing(hdfs)
    store.create("log/0", b"theirs")
    store._client._executes.append(False)
    with pytest.raises(ObjectExists, match="log/0"):
        store.create("log/0", b"ours")
    assert store.get("log/0") == b"theirs"
    left = store._client.list_status(f"{store._root}/{TEMPORARY_FOLDER}")
    assert not list(left), "no temporary file is left"


def test_a_file_that_is_being_written_is_not_seen(hdfs: Server) -> None:
    store = losing(hdfs)
    writer = store.writer("shared/a")
    writer.write([b"half"])
    assert store.list("") == [] and store.folders("") == []
    writer.finish()
    assert store.list("") == ["shared/a"]


def test_a_slot_does_not_make_a_folder_that_its_driver_has_not_made(hdfs: Server) -> None:
    with pytest.raises(StoreError, match="hdfs://.*/nobody does not exist"):
        open_store(hdfs.uri("nobody"))


def test_a_name_node_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot create hdfs://127\.0\.0\.1:9/jobs: .*Connection refused"):
        open_store("hdfs://127.0.0.1:9/jobs", QUICK, create_root=True)
    with pytest.raises(StoreError, match="HADOOP_CONF_DIR"):
        open_store("hdfs:///jobs", QUICK)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_rename_whose_connection_is_cut_is_ours(hdfs: Hdfs, times: int) -> None:
    """The library repeats a request once by itself, and then finds that the file has lost its name."""
    with CuttingProxy(hdfs.port) as proxy:
        store = open_store(f"hdfs://127.0.0.1:{proxy.port}/{uuid.uuid4().hex}", QUICK, create_root=True)
        writes: list[Callable[[], None]] = [
            lambda: store.create("log/0", b"ours"),
            lambda: store.put("shared/a", [b"x" * 1000]),
        ]
        for write in writes:
            proxy.cut(b"rename2", times)
            write()
            assert proxy.left == 0
        assert store.list("") == ["log/0", "shared/a"] and store.get("log/0") == b"ours"


class Sweeps(LosesAnswers):
    """A client whose temporary files are removed before they get their names."""

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self._client.delete(source)
        super().rename(source, target, overwrite)


def test_a_file_that_somebody_removed_before_its_rename_does_not_hide_another_creator(hdfs: Hdfs) -> None:
    """A driver that was suspended for an hour finds its temporary file swept, and its successor's entry there."""
    store = losing(hdfs)
    store.create("log/0", b"theirs")
    store._client = Sweeps(store._client, [])
    for write in writes_to(store):
        with pytest.raises(StoreError, match="its temporary file was removed"):
            write()
    assert store.get("log/0") == b"theirs"


def writes_to(store: BrowsableStore) -> list[Callable[[], None]]:
    return [lambda: store.create("log/0", b"a"), lambda: store.put("log/0", [b"a" * 10_000_000])]


def after(delay_s: float, action: Any) -> threading.Thread:
    def run() -> None:
        time.sleep(delay_s)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_name_node_in_safe_mode_is_named_and_awaited(hdfs: Hdfs) -> None:
    store = quick(hdfs)
    patient = open_store(store._location.uri)  # type: ignore[attr-defined]
    hdfs.execute("safemode enter")
    try:
        for write in writes_to(store):
            with pytest.raises(StoreRefused, match=r"name node is in safe mode \(.*attempts.*dfsadmin -safemode leave"):
                write()
        assert store.list("") == []
    finally:
        leaving = after(0.5, lambda: hdfs.execute("safemode leave"))
    patient.create("log/0", b"x")
    leaving.join()
    assert patient.get("log/0") == b"x"


def test_a_name_node_that_starts_again_is_awaited(hdfs: Hdfs) -> None:
    store = open_store(quick(hdfs)._location.uri)  # type: ignore[attr-defined]
    store.create("log/0", b"x")
    hdfs.execute("namenode stop")
    starting = after(0.5, lambda: hdfs.execute("namenode start"))
    store.create("log/1", b"y")
    starting.join()
    assert store.get("log/0") == b"x" and store.list("log") == ["log/0", "log/1"]


def test_no_data_node_is_named_and_awaited(hdfs: Hdfs) -> None:
    store = quick(hdfs)
    store.put("shared/a", [b"x" * 1000])
    hdfs.execute("datanode stop")
    try:
        with pytest.raises(StoreError, match="cannot read .*/shared/a"):
            store.get("shared/a")
        with pytest.raises(StoreRefused, match="cannot write .*/shared/b"):
            store.put("shared/b", [b"x"])
    finally:
        hdfs.execute("datanode start")
    patient = open_store(store._location.uri)  # type: ignore[attr-defined]
    assert patient.get("shared/a") == b"x" * 1000
    patient.put("shared/b", [b"y"])
    assert patient.get("shared/b") == b"y" and patient.list("") == ["shared/a", "shared/b"]


def test_a_quota_that_is_used_up_is_named(hdfs: Hdfs) -> None:
    store = quick(hdfs)
    folder = store._root  # type: ignore[attr-defined]
    hdfs.execute(f"quota {folder} 1000")
    for write in writes_to(store):
        with pytest.raises(StoreRefused, match="quota of the directory is used up.*hdfs dfsadmin"):
            write()
    assert store.list("") == []
    hdfs.execute(f"quota {folder} {1 << 40}")
    store.create("log/0", b"x")


def test_a_folder_of_another_user_is_named(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs.execute("folder /of-alice alice")
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    store = open_store(hdfs.uri("of-alice"), QUICK)
    with pytest.raises(StoreRefused, match=r"refuses access .*user=mallory, access=WRITE.*hdfs dfs -chown"):
        store.create("log/0", b"x")
    with pytest.raises(StoreError, match="refuses access"):
        open_store(hdfs.uri("of-alice/jobs"), QUICK, create_root=True)


def test_a_name_node_that_hangs_is_given_up_in_time(hdfs: Hdfs) -> None:
    """hdfs-native waits for an answer without a limit."""
    store = quick(hdfs, **{"penstock.checkpoint-storage.request-timeout": "300 ms"})
    patient = open_store(store._location.uri)  # type: ignore[attr-defined]
    patient.create("log/0", b"x")  # a loaded machine may need longer than 300 ms
    hdfs.suspend()
    began = time.monotonic()
    try:
        for ask in (lambda: store.create("log/1", b"x"), lambda: store.list(""), lambda: store.get("log/0")):
            with pytest.raises(StoreError, match=r"hdfs://.*no answer within 0\.3 s"):
                ask()
        assert time.monotonic() - began < 30
    finally:
        hdfs.resume()
    patient.put("shared/a", [b"x"])
    assert patient.get("log/0") == b"x"


def test_a_pair_of_name_nodes_is_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = started("hdfs-pair", tmp_path / "pair")
    assert isinstance(pair, HdfsPair)
    for key, text in pair.environment.items():
        monkeypatch.setenv(key, text)
    store = open_store(pair.uri("jobs"), create_root=True)
    store.create("log/0", b"0")
    for number, command in enumerate(("active 1", "namenode stop", "namenode start", "active 0"), start=1):
        pair.execute(command)
        store.create(f"log/{number}", b"%d" % number)
    assert b"".join(map(store.get, store.list("log"))) == b"01234"
    pair.stop()
