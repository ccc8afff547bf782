"""Tests what a user hears of savepoints that cannot be written, and that the job continues."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.job_execution import SavepointFailed
from penstock.jobmaster.identity import JobIdentity, RestoreSourceError, identify
from penstock.jobmaster.job_recovery import check_fit
from penstock.jobmaster.ports import CancelRequested, SavepointOrder, SavepointRequested
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.log_entries import CheckpointEntry, stopped_with
from penstock.protocol.values.messages import Cancel, Deploy, Leave, Register, Restore, TriggerCheckpoint
from penstock.storage import local_files
from penstock.storage.layout import METADATA_NAME
from penstock.storage.local import TEMPORARY_FOLDER
from penstock.storage.log import read_log
from tests.unit.jobmaster.manual_ports import MixedDirectories
from tests.unit.jobmaster.master_world import (
    DIRECTORY,
    FAILING_COMMITS,
    JOB_ID,
    World,
    checkpoint_entries,
    failed,
    reset_target,
    seen_by,
)
from tests.unit.jobmaster.test_job_master_drain import report, resumed

READ_ONLY = [errno.EROFS, errno.EACCES]


@pytest.fixture(autouse=True)
def fresh_target() -> None:
    reset_target()


def running(folder: Path) -> World:
    """Return a job with one completed checkpoint, which tolerates no failed one."""
    options = {"execution.checkpointing.tolerable-failed-checkpoints": "0"}
    world = World(options, directories=MixedDirectories(folder))
    world.at(60.0)
    assert checkpoint_entries(world) == [1]
    return world


def order(world: World, folder: Path, stops: bool, drains: bool = False) -> list[str | SavepointFailed]:
    answers: list[str | SavepointFailed] = []
    world.master.handle(SavepointRequested(SavepointOrder(answers.append, str(folder), stops=stops, drains=drains)))
    world.run_until_idle()
    return answers


def continues(world: World) -> None:
    """Check that the job goes on as if nobody had asked for a savepoint."""
    before = len(checkpoint_entries(world))
    world.at(world.clock.now_ms + 250.0)
    assert world.master.report.state == "RUNNING" and world.master.report.restarts == 0
    assert len(checkpoint_entries(world)) > before


def refusing(number: int, is_refused: Callable[[str], bool]) -> Callable[..., None]:
    """Return what writes to a file, unless the file system refuses that for its path."""
    write_all = local_files._write_all

    def write(descriptor: int, parts: Any) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/savepoint-" in path and is_refused(path):
            raise OSError(number, os.strerror(number))
        write_all(descriptor, parts)

    return write


@pytest.mark.parametrize("stops", [False, True])
def test_one_that_can_be_written_is_taken(tmp_path: Path, stops: bool) -> None:
    """Check that what the tests below refuse works otherwise."""
    world = running(tmp_path)
    (answer,) = order(world, tmp_path, stops)
    assert isinstance(answer, str) and Path(answer, METADATA_NAME).exists()
    if not stops:
        continues(world)
    else:
        assert world.master.outcome is not None and world.master.outcome.state == "FINISHED"


def test_who_has_the_answer_finds_the_savepoint_complete_in_the_report(tmp_path: Path) -> None:
    world = running(tmp_path)
    seen: list[list[tuple[str, str | None]]] = []

    def answer(directory: str | SavepointFailed) -> None:
        assert isinstance(directory, str)
        seen.append([(c.status, c.path) for c in world.master.report.checkpoints if c.is_savepoint])
        seen.append([("completed", directory)])

    world.master.handle(SavepointRequested(SavepointOrder(answer, str(tmp_path))))
    world.run_until_idle()
    assert len(seen) == 2 and seen[0] == seen[1]


def test_who_comes_behind_a_stop_names_the_savepoint_that_the_job_has_ended_with() -> None:
    """Its driver dies before it has answered, and several savepoints may lie there: only one is where the job ended."""
    first = World()
    first.at(60.0)
    first.muted.add(Leave)
    first.work.is_paused = True
    first.master.handle(SavepointRequested(SavepointOrder(lambda answer: None, "/savepoints", stops=True)))
    while not any(isinstance(entry, CheckpointEntry) and entry.is_final for entry in read_log(first.store)):
        first.work.is_paused = True
        first.work.run_one()
        first.run_until_idle()
    (directory,) = [path for path in first.directories.stores if "savepoint-" in path]

    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.outcome is not None and second.master.outcome.state == "FINISHED"
    told = f"job {JOB_ID} was stopped with the savepoint {directory}"
    assert any(told in warning for warning in second.console.warnings), second.console.warnings

    # Its metadata has been deleted by now. What is left, the log, names it to whoever starts the job later.
    resumed = JobIdentity(JOB_ID, DIRECTORY, resume=True)
    with pytest.raises(RestoreSourceError, match=rf"stopped with the savepoint {directory}.* \(-s {directory}\)"):
        check_fit(second.graph, resumed, first.directories.open, False)
    assert stopped_with(read_log(first.store)) == directory
    options = {"high-availability.type": "filesystem", "execution.checkpointing.dir": "/checkpoints"}
    options |= {"execution.checkpointing.interval": "1 s", "pipeline.job-id": JOB_ID}
    supervised = identify(Configuration(options), "job", lambda: "f" * 32, first.directories.open)
    assert supervised.is_over and supervised.stopped_with == directory


def test_what_a_killed_driver_leaves_of_a_savepoint_is_no_start_and_is_named(tmp_path: Path) -> None:
    world = running(tmp_path)
    world.muted.add(TriggerCheckpoint)
    assert not order(world, tmp_path, stops=False)
    (directory,) = tmp_path.iterdir()
    trigger = seen_by(world, 0, TriggerCheckpoint)[-1]
    world.say(0, world.save(0, trigger.barrier.checkpoint_id, str(directory)))
    # The driver is killed: nobody does anything any more.
    options = {"execution.checkpointing.interval": "1 s", "execution.state-recovery.path": str(directory)}
    with pytest.raises(RestoreSourceError, match=rf"{directory} is an unfinished savepoint: it has segments, but no"):
        identify(Configuration(options), "job", lambda: "f" * 32, world.directories.open)
    (directory / METADATA_NAME).touch()
    assert identify(Configuration(options), "job", lambda: "f" * 32, world.directories.open).start_from is not None


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("number", READ_ONLY)
def test_one_whose_directory_cannot_be_made_fails_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, stops: bool
) -> None:
    mkdir = Path.mkdir

    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name.startswith("savepoint-"):
            raise OSError(number, os.strerror(number), str(path))
        mkdir(path, *arguments, **options)

    world = running(tmp_path)
    monkeypatch.setattr(Path, "mkdir", refuse)
    (answer,) = order(world, tmp_path, stops)
    assert isinstance(answer, SavepointFailed)
    told = str(answer)
    assert told.startswith(f"the savepoint {tmp_path}/savepoint-") and "cannot be written: cannot create" in told
    assert f"is not writable for user {os.geteuid()} ({os.strerror(number)})" in told
    assert not any(m.barrier.kind.is_savepoint for m in seen_by(world, 0, TriggerCheckpoint))
    continues(world)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("number", READ_ONLY)
@pytest.mark.parametrize(
    ("is_refused", "says"),
    [
        (lambda path: TEMPORARY_FOLDER in path, f"/{METADATA_NAME}"),
        (lambda path: "/s1_c" in path, "/s1_c"),
    ],
    ids=["by the driver", "by one executor"],
)
def test_one_whose_directory_cannot_be_written_fails_by_name_and_is_removed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_refused: Callable[[str], bool],
    says: str,
    number: int,
    stops: bool,
) -> None:
    world = running(tmp_path)
    monkeypatch.setattr(local_files, "_write_all", refusing(number, is_refused))
    (answer,) = order(world, tmp_path, stops)
    assert isinstance(answer, SavepointFailed)
    told = str(answer)
    assert told.startswith(f"the savepoint {tmp_path}/savepoint-") and "was not taken: " in told
    assert f"cannot write {tmp_path}/savepoint-" in told and says in told
    assert f"is not writable for user {os.geteuid()} ({os.strerror(number)})" in told
    assert list(tmp_path.iterdir()) == []
    continues(world)


def test_one_whose_directory_is_removed_while_it_is_written_fails_and_the_job_continues(tmp_path: Path) -> None:
    world = running(tmp_path)
    answers: list[str | SavepointFailed] = []
    world.muted.add(TriggerCheckpoint)
    world.master.handle(SavepointRequested(SavepointOrder(answers.append, str(tmp_path))))
    world.run_until_idle()
    (directory,) = tmp_path.iterdir()
    trigger = seen_by(world, 0, TriggerCheckpoint)[-1]
    world.say(0, world.save(0, trigger.barrier.checkpoint_id, str(directory)))
    shutil.rmtree(directory)
    world.say(1, world.save(1, trigger.barrier.checkpoint_id, str(directory)))
    world.run_until_idle()
    (answer,) = answers
    assert isinstance(answer, SavepointFailed) and "does not exist here" in str(answer)
    assert list(tmp_path.iterdir()) == []
    world.muted.clear()
    continues(world)


# ---- a stop at any time ---------------------------------------------------------------------------------------------

NOT_RUNNING = "the job is not running (it starts, or restarts); try again"
ENDED = "the job has ended"


def starting_without(muted: type | None) -> World:
    """Return a job whose slots leave its messages of this kind without an answer."""
    world = World(autostart=False)
    world.muted = set() if muted is None else {muted}
    world.run_until_idle()
    return world


def waiting_for_its_restart() -> World:
    world = World(
        {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 s"}
        | {"restart-strategy.fixed-delay.attempts": "1"}
    )
    world.at(60.0)
    world.say(0, failed(0, Generation(0, 1)))
    world.run_until_idle()
    return world


def working_off_layers(parallelism: int) -> World:
    world = resumed(parallelism, autostart=False)
    world.layers = {1: 3}
    world.run_until_idle()
    return world


def cancelling() -> World:
    world = World()
    world.muted = {Leave, Cancel}
    world.master.handle(CancelRequested())
    world.run_until_idle()
    return world


def committing_its_last_output() -> World:
    world = World()
    FAILING_COMMITS[0] = 2
    world.reach_end_of_data()
    return world


def finished() -> World:
    world = World()
    world.reach_end_of_data()
    return world


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_job_that_works_off_layers_is_stopped_with_what_is_left_of_them_or_drained(
    parallelism: int, drains: bool
) -> None:
    world = working_off_layers(parallelism)
    assert world.master.lifecycle.phase is Phase.RUNNING and world.master.running.is_draining is (parallelism == 3)
    answers = order(world, Path("/savepoints"), stops=True, drains=drains)
    if drains:
        assert not answers and world.master.outcome is None, "everything is processed before"
        for slot in world.slots if parallelism == 3 else ():
            report(world, SubtaskId(1, slot), 1, applied=0)
        world.reach_end_of_data()
    (answer,) = answers
    assert isinstance(answer, str) and world.directories.stores[answer].list("") != []
    assert world.master.outcome is not None and world.master.outcome.state == "FINISHED"


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize(
    ("begin", "phase", "says", "ends_as"),
    [
        (lambda: starting_without(Register), Phase.GATHERING, NOT_RUNNING, None),
        (lambda: starting_without(Deploy), Phase.CONNECTING, NOT_RUNNING, None),
        (lambda: starting_without(Restore), Phase.RESTORING, NOT_RUNNING, None),
        (waiting_for_its_restart, Phase.GATHERING, NOT_RUNNING, None),
        (cancelling, Phase.ENDING, NOT_RUNNING, "CANCELED"),
        (committing_its_last_output, Phase.RUNNING, ENDED, "FINISHED"),
        (finished, Phase.ENDED, ENDED, "FINISHED"),
    ],
    ids=[
        "gathers slots", "connects", "restores", "waits for its restart", "is cancelled", "commits its last output",
        "has finished",
    ],
)  # fmt: skip
def test_a_stop_that_the_job_cannot_take_is_refused_with_the_reason(
    begin: Callable[[], World], phase: Phase, says: str, ends_as: str | None, drains: bool
) -> None:
    world = begin()
    assert world.master.lifecycle.phase is phase
    (answer,) = order(world, Path("/savepoints"), stops=True, drains=drains)
    assert isinstance(answer, SavepointFailed) and str(answer).endswith(says), str(answer)
    assert not any(store.list("") for path, store in world.directories.stores.items() if "savepoint-" in path)
    # The job continues, or ends, as if nobody had asked.
    muted, world.muted = world.muted, set()
    for slot in world.slots.values():
        for message in list(world.seen.get(slot.index, [])):
            if type(message) in muted:
                world._answer(slot, message)
    world.run_until_idle()
    world.at(world.clock.now_ms + 15_000.0)
    outcome = world.master.outcome
    assert (None if outcome is None else outcome.state) == ends_as
    if ends_as is None:
        assert world.master.report.state == "RUNNING" and checkpoint_entries(world)
