"""HDFS that fails: a rename whose answer is lost, a name node that is away, a folder that is missing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hdfs_native
import pytest

from penstock.common.configuration import Configuration
from penstock.storage.hdfs import TEMPORARY_FOLDER, HdfsStore
from penstock.storage.location import remote_location
from penstock.storage.opening import open_store
from penstock.storage.settings import StoreSettings
from penstock.storage.store import ObjectExists, StoreError
from tests.stores.conftest import started
from tools.object_stores import Server

QUICK = StoreSettings.of(Configuration({"penstock.checkpoint-storage.retry-timeout": "1 s"}))


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started("hdfs", tmp_path_factory.mktemp("hdfs"))
    yield running
    running.stop()


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
