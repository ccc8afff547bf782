"""Tests what a start means for a job that may have run before: with `high-availability.type` its log decides."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import OptionError
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, identify, job_id_of
from penstock.jobmaster.ports import CancelRequested
from penstock.protocol.values.log_entries import Ended
from penstock.storage.log import append, read_log
from penstock.storage.store import StoreError
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.jobmaster.master_world import DIRECTORY, JOB_ID, World

AVAILABLE = {"high-availability.type": "filesystem"}
RETAINED = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


def started(directories: Directories | None = None, name: str = "job", **options: str) -> JobIdentity:
    given = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": "/checkpoints",
        "pipeline.job-id": JOB_ID,
        **AVAILABLE,
        **{key.replace("_", "."): value for key, value in options.items()},
    }
    configuration = Configuration({key: value for key, value in given.items() if value})
    return identify(configuration, name, lambda: "f" * 32, (directories or Directories()).open)


def from_path(path: str, directories: Directories | None = None) -> JobIdentity:
    return started(directories, **{"execution.state-recovery.path": path})


def again(first: World) -> World:
    identity = started(first.directories)
    assert not identity.is_over
    return World(AVAILABLE, directories=first.directories, identity=identity, incarnation="two")


def restored_by(second: World) -> int:
    assert second.master.report.state == "RUNNING" and second.master.job.restore_point is not None
    return second.master.job.restore_point.metadata.checkpoint_id


def test_without_a_log_the_job_starts_afresh() -> None:
    assert started() == JobIdentity(JOB_ID, DIRECTORY)
    empty = Directories()
    empty.open(DIRECTORY, True)
    assert started(empty) == JobIdentity(JOB_ID, DIRECTORY)


def test_without_an_id_the_same_name_is_the_same_job() -> None:
    given = {"pipeline.job-id": ""}
    first, other = started(None, "first", **given), started(None, "other", **given)
    assert first.job_id == started(None, "first", **given).job_id == job_id_of("first") != other.job_id
    assert first.directory == f"/checkpoints/{first.job_id}"


def test_a_job_whose_driver_was_killed_is_resumed() -> None:
    first = World(AVAILABLE)
    assert started(first.directories) == JobIdentity(JOB_ID, DIRECTORY, resume=True), "before its first checkpoint"
    first.at(60.0)
    assert restored_by(again(first)) == 1


def test_a_suspended_job_keeps_log_and_checkpoints_and_is_resumed() -> None:
    first = World(AVAILABLE)
    first.at(60.0)
    first.master.handle(CancelRequested(suspends=True))
    first.run_until_idle()
    outcome = first.master.outcome
    assert outcome is not None and outcome.is_suspended and outcome.resume_from == DIRECTORY
    assert not any(isinstance(entry, Ended) for entry in read_log(first.store))
    assert restored_by(again(first)) == 1


def test_a_job_that_is_about_to_be_suspended_can_still_be_cancelled() -> None:
    first = World({**AVAILABLE, **RETAINED})
    first.at(60.0)
    first.master.handle(CancelRequested(suspends=True))
    first.master.handle(CancelRequested())
    first.run_until_idle()
    assert first.master.outcome is not None and not first.master.outcome.is_suspended
    assert [entry.state for entry in read_log(first.store) if isinstance(entry, Ended)] == ["CANCELED"]


def test_a_job_is_suspended_or_cancelled_as_its_log_says() -> None:
    first = World({**AVAILABLE, **RETAINED})
    first.at(60.0)
    first.master.handle(CancelRequested(suspends=True))
    first.work.is_paused = True
    first.run_until_idle()
    assert [name for name, *_ in first.work.waiting], "the log is asked whether it is ours"
    first.master.handle(CancelRequested())
    first.work.is_paused = False
    first.run_until_idle()
    assert first.master.outcome is not None and first.master.outcome.is_suspended
    assert not any(isinstance(entry, Ended) for entry in read_log(first.store)), "its next start resumes it"


def test_a_cancelled_job_stays_cancelled_until_somebody_resumes_it() -> None:
    first = World({**AVAILABLE, **RETAINED})
    first.at(60.0)
    first.master.handle(CancelRequested())
    first.master.handle(CancelRequested(suspends=True))  # too late
    first.run_until_idle()
    assert first.master.outcome is not None and not first.master.outcome.is_suspended
    found = started(first.directories)
    assert found.is_over and found.ended is not None and found.ended.state == "CANCELED" and found.ended.retained
    assert started(first.directories, **{"execution.state-recovery.path": DIRECTORY}).ended is None, "-s resumes it"
    World(directories=first.directories, resume=True, incarnation="two")
    assert not started(first.directories).is_over


def test_a_job_cancelled_without_a_checkpoint_stays_cancelled() -> None:
    first = World(AVAILABLE)
    first.at(60.0)
    first.master.handle(CancelRequested())
    first.run_until_idle()
    World(directories=first.directories, resume=True, incarnation="two")  # refused, but its fence is in the log
    assert started(first.directories).is_over


@pytest.mark.parametrize("is_available", [True, False])
def test_a_failed_job_keeps_its_newest_checkpoint_if_its_next_start_resumes_it(is_available: bool) -> None:
    first = World({"restart-strategy.type": "none", **(AVAILABLE if is_available else {})})
    first.at(60.0)
    first.kill(0)
    first.run_until_idle()
    assert first.master.outcome is not None and first.master.outcome.state == "FAILED"
    found = started(first.directories)
    assert found.resume and not found.is_over and found.ended is not None and found.ended.state == "FAILED"
    if is_available:
        assert restored_by(again(first)) == 1
    else:
        assert not found.ended.retained


def test_a_finished_job_is_over_for_good() -> None:
    directories = Directories()
    store = directories.open(DIRECTORY, True)
    first = World(AVAILABLE, directories=directories)
    append(store, Ended(1, "one", "FINISHED", []))
    found = started(directories)
    assert found.is_over and found.resume and found.ended == Ended(1, "one", "FINISHED", [])
    World(directories=directories, resume=True, incarnation="two")
    assert len(read_log(first.store)) == 3 and started(directories).is_over, "whoever asks for a resume meanwhile"


def test_a_savepoint_or_checkpoint_to_start_from_counts_only_without_a_log() -> None:
    origin = f"/checkpoints/{'e' * 32}/chk-3"
    assert from_path(origin).start_from == CheckpointToStartFrom(f"/checkpoints/{'e' * 32}", 3)
    first = World(AVAILABLE)
    assert from_path(origin, first.directories) == JobIdentity(JOB_ID, DIRECTORY, resume=True)
    assert from_path("/savepoints/gone", first.directories).resume, "it may have been deleted since"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"execution.checkpointing.interval": ""}, r"needs execution\.checkpointing\.interval$"),
        ({"execution.checkpointing.dir": ""}, r"needs execution\.checkpointing\.dir$"),
        ({"execution.checkpointing.storage": "jobmanager"}, r"execution\.checkpointing\.storage = filesystem"),
    ],
)
def test_what_it_needs_is_said(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        started(None, **options)


def test_a_log_that_cannot_be_read_is_neither_resumed_nor_started_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    first = World(AVAILABLE)

    def damaged(*_: Any) -> bytes:
        raise StoreError("log/0: cannot be read")

    monkeypatch.setattr(first.directories.stores[DIRECTORY], "get", damaged)
    with pytest.raises(StoreError, match="cannot be read"):
        started(first.directories)


def test_of_two_first_starts_one_wins_and_the_other_ends_without_a_word_in_the_log() -> None:
    directories = Directories()
    identities = [started(directories), started(directories)]
    first = World(AVAILABLE, directories=directories, identity=identities[0])
    second = World(AVAILABLE, directories=directories, identity=identities[1], incarnation="two")
    outcome = second.master.outcome
    assert outcome is not None and outcome.is_suspended and "has a log already" in str(outcome.error)
    first.at(60.0)
    assert first.master.report.state == "RUNNING" and {e.incarnation for e in read_log(first.store)} == {"one"}


def test_a_driver_that_was_fenced_is_suspended() -> None:
    first = World(AVAILABLE)
    first.at(60.0)
    second = again(first)
    first.at(200.0)
    outcome = first.master.outcome
    assert outcome is not None and outcome.is_suspended and "taken over" in str(outcome.error)
    assert second.master.report.state == "RUNNING"
