"""Tests that starts and commands tell a store that is away from one that is empty or damaged."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common.configuration import Configuration
from penstock.jobmaster.identity import JobIdentity, RestoreSourceError, identify
from penstock.protocol.values.log_entries import CheckpointEntry, Fence
from penstock.spark.driver.storage_wait import look_at_storage
from penstock.storage.layout import log_path
from penstock.storage.log import encode_entry
from penstock.storage.opening import OpenStore, open_store
from penstock.storage.store import StoreAway, StoreError
from penstock.storage.store_settings import StoreSettings
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET
from tools.object_stores import Server

JOB_ID = "0" * 26 + "c0ffee"
AWAY = Fault(500, "InternalError")


@dataclass
class Place:
    """A checkpoint directory with one job, which has a log and no readable checkpoint."""

    root: str
    options: dict[str, str]
    proxy: FaultyProxy

    def open(self, directory: str, create: bool) -> object:
        return open_store(directory, StoreSettings.of(Configuration(self.options)), create_root=create)

    def found(self, **more: str) -> JobIdentity:
        given = {key.replace("__", "-").replace("_", "."): text for key, text in more.items()}
        configuration = Configuration(
            {**self.options, "execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": self.root}
            | given
        )
        opened: OpenStore = self.open  # type: ignore[assignment]
        return identify(configuration, "orders", lambda: "f" * 32, opened)


@pytest.fixture
def place(moto: Server, proxy: FaultyProxy) -> Iterator[Place]:
    options = {**moto.options, "s3.endpoint": proxy.url, "penstock.checkpoint-storage.retry-timeout": "300 ms"}
    root = f"{moto.uri(BUCKET)}/{uuid.uuid4().hex}"
    store = open_store(f"{root}/{JOB_ID}", StoreSettings.of(Configuration(options)), create_root=True)
    store.create(log_path(0), encode_entry(Fence(0, "inc", 0, "host", 1)))
    entry = CheckpointEntry(1, "inc", 0, 1, 1, "chk-1/_metadata", 0, ["chk-1/_metadata"])
    store.create(log_path(1), encode_entry(entry))
    yield Place(root, options, proxy)


STARTS = {
    "latest": {"execution_state__recovery_path": "latest"},
    "--ha": {"high__availability_type": "filesystem", "pipeline_job__id": JOB_ID},
}


def given(place: Place, start: str) -> dict[str, str]:
    path = {"-s job": JOB_ID, "-s chk": f"{JOB_ID}/chk-1", "-s savepoint": "savepoint-1"}.get(start)
    return STARTS[start] if path is None else {"execution_state__recovery_path": f"{place.root}/{path}"}


@pytest.mark.parametrize("how", ["answers 500", "refuses connections"])
@pytest.mark.parametrize("start", ["latest", "--ha", "-s job", "-s savepoint"])
def test_a_store_that_is_away_is_neither_empty_nor_damaged(place: Place, start: str, how: str) -> None:
    if how == "answers 500":
        place.proxy.fault = lambda method, path: AWAY
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            place.options["s3.endpoint"] = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(StoreAway) as raised:
        place.found(**given(place, start))
    told = str(raised.value)
    assert ("answers 500" if how == "answers 500" else "does not answer") in told
    assert "damaged" not in told and "nothing to resume" not in told


def test_only_the_newest_checkpoint_is_away(place: Place) -> None:
    """It was called damaged, and with that no job of the name."""
    place.proxy.fault = lambda method, path: AWAY if "chk-1" in path else PASSED
    with pytest.raises(StoreAway, match="answers 500"):
        place.found(**STARTS["latest"])


def test_damaged_and_empty_are_said_as_they_are(place: Place) -> None:
    with pytest.raises(RestoreSourceError, match="it is damaged: .*chk-1/_metadata does not exist"):
        place.found(**STARTS["latest"])
    place.root += "-empty"
    with pytest.raises(RestoreSourceError, match="no job called 'orders' has a completed checkpoint"):
        place.found(**STARTS["latest"])
    assert place.found(**STARTS["--ha"]).resume is False
    with pytest.raises(RestoreSourceError, match="is neither a savepoint"):
        place.found(**given(place, "-s savepoint"))


def test_a_store_that_refuses_access_is_not_waited_for(place: Place) -> None:
    place.proxy.fault = lambda method, path: Fault(403, "AccessDenied")
    with pytest.raises(StoreError, match="refuses access") as raised:
        place.found(**STARTS["--ha"])
    assert not isinstance(raised.value, StoreAway)


def test_a_start_that_every_start_resumes_waits_for_its_store(place: Place) -> None:
    told: list[str] = []
    place.proxy.fault = lambda method, path: AWAY

    def tell(text: str) -> None:
        told.append(text)
        place.proxy.fault = lambda method, path: PASSED

    found = look_at_storage(lambda: place.found(**STARTS["--ha"]), tell, 60.0)
    assert found.resume and found.job_id == JOB_ID
    assert len(told) == 1 and "the checkpoint storage is away" in told[0] and "answers 500" in told[0]


def test_a_store_that_is_slow_is_said_to_be(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.driver.storage_wait.SLOW_S", 0.05)
    told, heard = list[str](), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        heard.set()

    def slowly(method: str, path: str) -> Fault:
        heard.wait(30)
        return PASSED

    place.proxy.fault = slowly
    assert look_at_storage(lambda: place.found(**STARTS["--ha"]), tell, 0.0).resume
    assert told == ["waiting for the checkpoint storage, which is slow to answer"]


@pytest.mark.parametrize("command", ["list", "info", "info chk", "state inspect", "state verify"])
def test_commands_end_with_exit_code_1_while_the_store_is_away(
    place: Place, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = "".join(f"{key}: '{text}'\n" for key, text in place.options.items())
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_RUN_DIR", str(tmp_path))
    words = command.removesuffix(" chk").split()
    path = place.root if command == "list" else f"{place.root}/{JOB_ID}{'/chk-1' if ' chk' in command else ''}"
    damaged = CliRunner().invoke(app, [*words, path])
    assert "answers 500" not in damaged.output, damaged.output
    place.proxy.fault = lambda method, asked: AWAY
    away = CliRunner().invoke(app, [*words, path])
    assert away.exit_code == 1 and "answers 500" in away.output, away.output
    assert "damaged" not in away.output


def test_list_shows_a_job_whose_checkpoint_is_away(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = "".join(f"{key}: '{text}'\n" for key, text in place.options.items())
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    assert "damaged" in CliRunner().invoke(app, ["list", place.root]).output
    place.proxy.fault = lambda method, asked: (
        AWAY if ("chk-1" in asked and method != "GET") or "_metadata" in asked else PASSED
    )
    listed = CliRunner().invoke(app, ["list", place.root])
    assert "unreachable" in listed.output and "damaged" not in listed.output
