"""Tests how jobs end and what they leave behind, and who owns a job when several drivers want it."""

from __future__ import annotations

import pytest

from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity
from penstock.jobmaster.ports import CancelRequested
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.messages import (
    Deploy,
)
from penstock.storage.log import read_log
from tests.unit.jobmaster.master_world import (
    COMMITTED,
    DIRECTORY,
    FAILING_COMMITS,
    JOB_ID,
    REPORTED,
    World,
    beat,
    checkpoint_entries,
    failed,
    reset_target,
    seen_by,
    two_vertices,
)


@pytest.fixture(autouse=True)
def fresh_target() -> None:
    reset_target()


# ---- ends -------------------------------------------------------------------------------------------------------


def test_the_final_checkpoint_commits_and_the_job_finishes_leaving_only_its_log() -> None:
    world = World()
    world.at(60.0)
    world.reach_end_of_data()
    assert world.master.outcome is not None and world.master.outcome.state == "FINISHED"
    assert COMMITTED == [b"1-0", b"1-1", b"2-0", b"2-1"]
    assert {p.split("/")[0] for p in world.store.list("")} == {"log"}
    entries = read_log(world.store)
    assert isinstance(entries[-1], Ended) and entries[-1].state == "FINISHED"
    assert isinstance(entries[-2], CheckpointEntry) and entries[-2].is_final
    assert world.cancelled and world.master.next_deadline_ms() is None


def test_without_checkpoints_output_is_committed_once_at_the_end() -> None:
    world = World({"execution.checkpointing.interval": ""}, identity=JobIdentity(JOB_ID, None))
    world.at(60.0)
    assert COMMITTED == []
    world.reach_end_of_data()
    assert world.master.outcome is not None and world.master.outcome.state == "FINISHED"
    assert COMMITTED == [b"1-0", b"1-1"] and world.directories.stores == {}
    assert world.master.report.completed == 0


@pytest.mark.parametrize("options", [{}, {"execution.checkpointing.interval": ""}], ids=["checkpoints", "none"])
def test_the_positions_of_the_end_are_reported_before_the_job_ends(options: dict[str, str]) -> None:
    world = World(options, identity=JobIdentity(JOB_ID, None)) if options else World()
    world.at(60.0)
    world.work.is_paused = True
    world.reach_end_of_data()
    while world.master.outcome is None and world.work.run_one():
        world.run_until_idle()
    last = 1 if options else 2
    assert REPORTED[-1] == [b"0 of checkpoint %d" % last, b"1 of checkpoint %d" % last]
    assert REPORTED.count(REPORTED[-1]) == 1


def test_the_next_driver_reports_the_positions_of_an_end_that_the_first_has_not_reported() -> None:
    """Without this: a driver that dies behind its last log entry leaves the group where an earlier checkpoint was."""
    first = World()
    first.at(60.0)
    first.work.is_paused = True
    first.reach_end_of_data()
    while not any(isinstance(e, CheckpointEntry) and e.is_final for e in read_log(first.store)):
        first.work.run_one()
    REPORTED.clear()
    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.outcome is not None and second.master.outcome.state == "FINISHED"
    assert REPORTED == [[b"0 of checkpoint 2", b"1 of checkpoint 2"]]


def test_a_slot_lost_after_the_final_checkpoint_does_not_restart_the_job() -> None:
    world = World()
    FAILING_COMMITS[0] = 2
    world.reach_end_of_data()
    assert world.master.outcome is None
    world.kill(0)
    world.at(5_000.0)
    assert world.master.outcome is not None and world.master.outcome.state == "FINISHED"
    assert world.master.report.restarts == 0 and COMMITTED == [b"1-0", b"1-1"]


def test_final_output_that_cannot_be_committed_is_kept_and_named() -> None:
    world = World()
    FAILING_COMMITS[0] = 10**6
    world.reach_end_of_data()
    world.at(60_000.0)
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "FAILED" and outcome.resume_from == DIRECTORY
    assert "sink 'list'" in str(outcome.error)
    FAILING_COMMITS[0] = 0
    again = World(directories=world.directories, resume=True, incarnation="two")
    assert again.master.outcome is not None and again.master.outcome.state == "FINISHED"
    assert COMMITTED == [b"1-0", b"1-1"] and again.master.report.generation == 0, "nothing ran again"


@pytest.mark.parametrize(
    ("retention", "keeps"),
    [("RETAIN_ON_CANCELLATION", True), ("DELETE_ON_CANCELLATION", False), ("NO_EXTERNALIZED_CHECKPOINTS", False)],
)
def test_retention_on_cancellation(retention: str, keeps: bool) -> None:
    world = World({"execution.checkpointing.externalized-checkpoint-retention": retention})
    world.at(60.0)
    world.master.handle(CancelRequested())
    world.run_until_idle()
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "CANCELED"
    assert outcome.resume_from == (DIRECTORY if keeps else None)
    assert bool(world.store.list("chk-1")) is keeps


@pytest.mark.parametrize(
    ("retention", "keeps"), [("DELETE_ON_CANCELLATION", True), ("NO_EXTERNALIZED_CHECKPOINTS", False)]
)
def test_retention_on_failure(retention: str, keeps: bool) -> None:
    world = World(
        {"execution.checkpointing.externalized-checkpoint-retention": retention, "restart-strategy.type": "none"}
    )
    world.at(60.0)
    world.say(0, failed(0, Generation(0, 1)))
    world.run_until_idle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert bool(world.store.list("chk-1")) is keeps


def test_cancel_waits_for_what_is_being_published() -> None:
    world = World({"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"})
    world.work.is_paused = True
    world.at(50.0)
    world.master.handle(CancelRequested())
    world.run_until_idle()
    assert world.master.outcome is None
    world.work.is_paused = False
    world.run_until_idle()
    assert world.master.outcome is not None
    assert COMMITTED == [b"1-0", b"1-1"] and checkpoint_entries(world) == [1]


def test_storage_that_never_answers_does_not_hold_up_the_end_for_ever() -> None:
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    world.master.handle(CancelRequested())
    world.at(60_000.0)
    assert world.master.outcome is not None and world.master.outcome.state == "CANCELED"
    assert "storage did not answer" in world.console.warnings[-1]


# ---- who owns the job -------------------------------------------------------------------------------------------


def test_resume_fences_the_first_driver_which_stops_and_deletes_nothing() -> None:
    first = World()
    first.at(60.0)
    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.report.state == "RUNNING"
    assert second.master.job.restore_point is not None and second.master.job.restore_point.metadata.checkpoint_id == 1
    before = [p for p in first.store.list("") if not p.startswith("log")]
    first.at(200.0)
    outcome = first.master.outcome
    assert outcome is not None and outcome.state == "FAILED" and "taken over" in str(outcome.error)
    assert set(before) <= set(first.store.list(""))
    assert COMMITTED == [b"1-0", b"1-1"], "the first has committed nothing since"
    second.at(200.0)
    assert COMMITTED[2:4] == [b"2-0", b"2-1"] or COMMITTED[2:4] == [b"3-0", b"3-1"]
    assert second.master.outcome is None
    owners = [e.incarnation for e in read_log(first.store)]
    assert owners == sorted(owners), "one log that never forks"


def test_generations_of_a_later_driver_are_larger() -> None:
    first = World()
    first.kill(0)
    first.run_until_idle()
    second = World(directories=first.directories, resume=True, incarnation="two")
    fence = second.master.job_directory.fence
    assert fence > 0 and second.slots[0].generation == Generation(fence, 1) > Generation(0, 2)


def test_a_fresh_start_into_a_directory_with_a_log_is_refused() -> None:
    first = World()
    second = World(directories=first.directories, incarnation="two")
    outcome = second.master.outcome
    assert outcome is not None and outcome.state == "FAILED" and "-s" in str(outcome.error)
    first.at(60.0)
    assert first.master.outcome is None and checkpoint_entries(first) == [1]


def test_a_resumed_job_commits_what_may_not_have_been_committed() -> None:
    first = World()
    first.work.is_paused = True
    first.at(50.0)
    while not checkpoint_entries(first):
        first.work.run_one()
    assert COMMITTED == []
    World(directories=first.directories, resume=True, incarnation="two")
    assert COMMITTED == [b"1-0", b"1-1"]


def test_a_resumed_job_without_a_checkpoint_starts_from_scratch() -> None:
    first = World()
    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.report.state == "RUNNING" and second.master.job.restore_point is None


def test_a_cancelled_job_that_kept_nothing_cannot_be_resumed() -> None:
    first = World()
    first.at(60.0)
    first.master.handle(CancelRequested())
    first.run_until_idle()
    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.outcome is not None and "kept no checkpoint" in str(second.master.outcome.error)


def test_a_new_job_starts_from_a_checkpoint_and_leaves_it_alone() -> None:
    first = World()
    first.at(60.0)
    other = "f" * 32
    identity = JobIdentity(other, f"/checkpoints/{other}", start_from=CheckpointToStartFrom(DIRECTORY, 1))
    second = World(directories=first.directories, identity=identity, incarnation="two")
    (deploy,) = seen_by(second, 0, Deploy)
    assert deploy.restore_root == DIRECTORY and deploy.restore is not None
    before = first.store.list("")
    (fence, *_) = read_log(first.directories.stores[f"/checkpoints/{other}"])
    second.at(1_000.0)
    assert set(before) <= set(first.store.list(""))
    assert isinstance(fence, Fence) and fence.restored_from == f"{DIRECTORY}/chk-1"
    assert second.master.report.checkpoints[-1].checkpoint_id > 2


def test_an_older_checkpoint_restores_when_asked_for_with_the_warning_that_output_repeats() -> None:
    first = World()
    first.at(160.0)
    first.store.delete("chk-2/_metadata")
    other = "f" * 32
    identity = JobIdentity(other, f"/checkpoints/{other}", start_from=CheckpointToStartFrom(DIRECTORY, 1))
    second = World(directories=first.directories, identity=identity, incarnation="two")
    assert second.master.report.state == "RUNNING"
    assert "put out after checkpoint 1 are put out again" in second.console.warnings[0]


def test_a_checkpoint_that_is_not_there_is_refused_by_name() -> None:
    identity = JobIdentity(JOB_ID, DIRECTORY, start_from=CheckpointToStartFrom("/nowhere", 3))
    world = World(identity=identity)
    assert world.master.outcome is not None and "/nowhere/chk-3" in str(world.master.outcome.error)


def test_a_program_that_does_not_fit_is_refused_and_everything_kept() -> None:
    first = World()
    first.at(60.0)
    second = World(directories=first.directories, resume=True, incarnation="two", graph=two_vertices(200))
    assert second.master.outcome is not None and "at most 128" in str(second.master.outcome.error)
    assert first.store.list("chk-1")


def test_what_older_generations_left_behind_is_swept_after_a_grace_time() -> None:
    world = World({"heartbeat.timeout": "10 s"})
    world.at(60.0)
    world.store.put("shared/g0-1_one_s1_c9_dead", [b"orphan"])
    world.kill(1)
    world.run_until_idle()
    world.store.put("shared/g0-9_one_s1_c99_new", [b"of a younger generation"])
    for now_ms in range(5_000, 40_000, 5_000):
        beat(world)
        world.at(float(now_ms))
    assert "shared/g0-1_one_s1_c9_dead" in world.store.list("shared")
    beat(world)
    world.at(41_000.0)
    assert "shared/g0-1_one_s1_c9_dead" not in world.store.list("shared")
    assert "shared/g0-9_one_s1_c99_new" in world.store.list("shared")
