"""Restarts that cannot be prepared: they keep the strategy's delay, and what no restart mends ends the job by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors.base import OutputGone
from penstock.jobmaster.identity import JobIdentity
from penstock.protocol.values.messages import Deploy
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.store import ObjectStore, StoreError, StoreRemoved
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.jobmaster.master_world import FAILING_COMMITS, ListCommitter, World, reset_target, seen_by, two_vertices

FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "2 s",
}


@pytest.fixture(autouse=True)
def empty_target() -> None:
    reset_target()


class AwayStore(MemoryStore):
    """Answers nothing while it is away."""

    is_away = False

    def list(self, prefix: str) -> list[str]:
        self._check()
        return super().list(prefix)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        self._check()
        return super().get(path, offset, length_bytes)

    def size(self, path: str) -> int:
        self._check()
        return super().size(path)

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("the file server does not answer")


class AwayDirectories(Directories):
    def open(self, directory: str, create: bool) -> ObjectStore:
        self.stores.setdefault(directory, AwayStore())
        return self.stores[directory]


def in_restarts(world: World, until_ms: float) -> list[float]:
    """Runs the world, which beats its heart, and returns when it said that it restarts."""
    told: list[float] = []
    warning = world.console.warning

    def noted(text: str) -> None:
        told.append(world.clock.now_ms)
        warning(text)

    world.console.warning = noted  # type: ignore[method-assign]
    now_ms = world.clock.now_ms
    while now_ms < until_ms and world.master.outcome is None:
        now_ms += 500.0
        world.at(now_ms)
    return told


def test_storage_that_is_away_is_asked_once_in_a_delay_until_the_attempts_are_used_up() -> None:
    world = World(FIXED, directories=AwayDirectories())
    world.at(60.0)
    store = world.store
    assert isinstance(store, AwayStore)
    store.is_away = True
    world.kill(0)
    told = in_restarts(world, 60_000.0)
    outcome = world.master.outcome
    assert outcome is not None and "all 10 restarts" in str(outcome.error)
    assert world.clock.now_ms >= 20_000.0, "ten delays of two seconds"
    assert all(later - earlier >= 2_000.0 for earlier, later in zip(told, told[1:]))
    assert "the file server does not answer" in str(outcome.error)


def test_storage_that_comes_back_within_the_delays_costs_restarts_only() -> None:
    world = World(FIXED, directories=AwayDirectories())
    world.at(60.0)
    store = world.store
    assert isinstance(store, AwayStore)
    store.is_away = True
    world.kill(0)
    world.at(5_000.0)
    store.is_away = False
    world.at(9_000.0)
    assert world.master.report.state == "RUNNING"
    assert seen_by(world, 0, Deploy)[-1].restore is not None


def test_a_commit_that_goes_on_failing_is_repeated_once_in_a_delay() -> None:
    world = World(FIXED)
    FAILING_COMMITS[0] = 4
    told = in_restarts(world, 9_500.0)
    assert len(told) == 4 and FAILING_COMMITS[0] == 0
    assert all(later - earlier >= 2_000.0 for earlier, later in zip(told, told[1:]))


def test_the_default_strategy_waits_longer_and_longer_for_storage_that_is_away() -> None:
    world = World(directories=AwayDirectories())
    world.at(60.0)
    store = world.store
    assert isinstance(store, AwayStore)
    store.is_away = True
    world.kill(0)
    told = in_restarts(world, 60_000.0)
    assert world.master.outcome is None and 5 <= len(told) <= 12


# ---- what no restart mends ------------------------------------------------------------------------------------------


def ends_at_once(world: World) -> str:
    """The error of a job that has failed without a restart."""
    world.run_until_idle()
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "FAILED" and world.master.lifecycle.restarts.count <= 1
    return str(outcome.error)


def test_output_of_a_sink_that_the_program_has_no_more_ends_the_job_by_name() -> None:
    first = World()
    first.at(60.0)
    second = World(directories=first.directories, resume=True, incarnation="two", autostart=False)
    second.master.commits._sinks.clear()
    second.run_until_idle()
    error = ends_at_once(second)
    assert "sink 'b" in error and "Put the sink back, under its old uid" in error
    assert first.store.list("chk-1"), "everything is kept"


def test_committed_files_that_were_taken_away_end_the_job_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Any, checkpoint_id: int, committables: list[bytes]) -> None:
        raise OutputGone("neither .part-1, which held them, nor part-1 exists")

    monkeypatch.setattr(ListCommitter, "commit", gone)
    world = World()
    world.at(60.0)
    error = ends_at_once(world)
    assert "sink 'list' could not commit its output" in error and "part-1" in error


def test_final_output_that_was_taken_away_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def gone(self: Any, checkpoint_id: int, committables: list[bytes]) -> None:
        attempts.append(1)
        raise OutputGone("part-1 was changed")

    world = World({"execution.checkpointing.interval": "1 h"})
    monkeypatch.setattr(ListCommitter, "commit", gone)
    world.reach_end_of_data()
    assert "part-1 was changed" in ends_at_once(world) and len(attempts) == 1


class LocalDirectories(Directories):
    """Real directories below `root`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def open(self, directory: str, create: bool) -> ObjectStore:
        return LocalStore(self._root / directory.removeprefix("/"), fsync=False, create_root=create)


def local_world(root: Path) -> tuple[World, Path]:
    identity = JobIdentity("0" * 32, "/checkpoints/" + "0" * 32)
    world = World(FIXED, directories=LocalDirectories(root), identity=identity, graph=two_vertices())
    return world, root / "checkpoints" / ("0" * 32)


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_a_job_whose_directory_was_removed_ends_by_name_and_advises_no_resume(tmp_path: Path, checkpoints: int) -> None:
    world, directory = local_world(tmp_path)
    world.at(60.0 * checkpoints)
    assert len(list(directory.glob("chk-*"))) == checkpoints
    shutil.rmtree(directory)
    world.kill(0)
    world.run_until_idle()
    world.at(2_100.0)
    error = ends_at_once(world)
    assert str(directory) in error and "has been removed" in error
    outcome = world.master.outcome
    assert outcome is not None and outcome.resume_from is None


def test_a_job_whose_log_was_removed_ends_by_name(tmp_path: Path) -> None:
    world, directory = local_world(tmp_path)
    world.at(60.0)
    shutil.rmtree(directory / "log")
    world.kill(0)
    world.at(2_100.0)
    assert "the job's log (log/ in its directory) was removed" in ends_at_once(world)


def test_a_file_system_that_is_not_mounted_is_waited_for(tmp_path: Path) -> None:
    world, directory = local_world(tmp_path)
    world.at(60.0)
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    world.kill(0)
    world.at(5_000.0)
    assert world.master.outcome is None
    (tmp_path / "away").rename(tmp_path / "checkpoints")
    world.at(9_000.0)
    assert world.master.report.state == "RUNNING"
    with pytest.raises(StoreRemoved):
        shutil.rmtree(directory)
        LocalStore.list(world.master.job_directory.store, "log")  # type: ignore[arg-type]
