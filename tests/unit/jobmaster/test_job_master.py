"""Tests the JobMaster over played slots: checkpoints become canonical and commit, failures restart from the newest one,
and splits, storage in memory and reports are served. Ends are in `test_job_master_ends`.
"""

from __future__ import annotations

import pytest

from penstock.common.job_execution import CheckpointFailed
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import execute
from penstock.jobmaster.ports import CheckpointRequested
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.log.log_operations import ReadEntry
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.log_entries import Fence
from penstock.protocol.values.messages import (
    CheckpointEnded,
    Decline,
    Deploy,
    PeerLost,
    Printed,
    Register,
    Restore,
    SlotStatus,
    SplitsAssigned,
    SplitsRequested,
    StoreReply,
    StoreRequest,
    SubtaskStatus,
    TriggerCheckpoint,
)
from penstock.protocol.values.reasons import FailureReason, SubtaskFailureReason
from penstock.storage.metadata_file import decode_metadata, read_metadata
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.jobmaster.master_world import (
    COMMITTED,
    DIRECTORY,
    FAILING_COMMITS,
    JOB_ID,
    World,
    checkpoint_entries,
    failed,
    reset_target,
    seen_by,
)


@pytest.fixture(autouse=True)
def fresh_target() -> None:
    reset_target()


# ---- checkpoints ------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_acknowledged_published_and_committed() -> None:
    world = World()
    assert world.master.report.state == "RUNNING"
    world.at(50.0)
    assert checkpoint_entries(world) == [1]
    assert COMMITTED == [b"1-0", b"1-1"]
    (report,) = world.master.report.checkpoints
    assert (report.status, report.path) == ("completed", f"{DIRECTORY}/chk-1")
    assert report.objects_written == 4 and report.state_bytes == 6


def test_commits_come_after_the_log_entry_and_never_before() -> None:
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    while not checkpoint_entries(world):
        assert COMMITTED == []
        assert world.work.run_one()
    assert COMMITTED == []
    world.work.is_paused = False
    world.run_until_idle()
    assert COMMITTED == [b"1-0", b"1-1"]


def test_segments_of_all_slots_are_numbered_through() -> None:
    world = World()
    world.at(50.0)
    metadata = read_metadata(world.store, "chk-1/_metadata")
    assert len(metadata.segments) == 2 and {s.path for s in metadata.segments} <= set(world.store.list("shared"))
    assert [v.name for v in metadata.vertices] == ["numbers", "list"]
    assert [e.data for e in metadata.enumerators] == [b"2"]


def test_slots_are_told_and_what_is_subsumed_is_deleted() -> None:
    world = World()
    world.muted = {CheckpointEnded}
    world.at(250.0)
    assert checkpoint_entries(world) == [1, 2, 3]
    assert [p for p in world.store.list("") if p.startswith("chk")] == ["chk-2/_metadata", "chk-3/_metadata"]
    assert len(world.store.list("shared")) == 4


def test_a_declined_checkpoint_leaves_no_files_and_counts() -> None:
    world = World()
    world.muted = {TriggerCheckpoint}
    world.at(50.0)
    world.say(0, world.ack(0, 1))
    generation = world.slots[1].generation
    assert generation is not None
    world.say(1, Decline(generation, 1, 1, SubtaskId(0, 1), FailureReason.IO_EXCEPTION, "disk full"))
    world.muted = set()
    world.run_until_idle()
    assert world.master.report.failed == 1 and "disk full" in str(world.master.report.checkpoints[0].failure)
    assert not [p for p in world.store.list("shared") if "_c1_" in p]
    assert world.master.report.restarts == 1, "none is tolerated by default"
    assert "tolerable-failed-checkpoints" in world.console.warnings[0]


def test_incomplete_in_flight_data_fails_the_checkpoint_by_channel() -> None:
    world = World({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    world.muted = {TriggerCheckpoint}
    world.at(50.0)
    for slot in (0, 1):
        good = world.ack(slot, 1)
        good.subtasks[0].outputs[0].emitted[0] = 3
        world.say(slot, good)
    world.run_until_idle()
    failure = str(world.master.report.checkpoints[0].failure)
    assert "channel a-b-0-0[1 -> 0]: elements [0, 3)" in failure and FailureReason.FINALIZE_FAILURE in failure
    assert checkpoint_entries(world) == []


def test_a_late_acknowledgement_is_deleted() -> None:
    world = World(
        {"execution.checkpointing.timeout": "20 ms", "execution.checkpointing.tolerable-failed-checkpoints": "9"}
    )
    world.muted = {TriggerCheckpoint}
    world.at(80.0)
    late = world.ack(0, 1)
    assert len(world.store.list("shared")) == 1
    world.say(0, late)
    world.run_until_idle()
    assert world.store.list("shared") == []


def test_a_user_may_ask_for_a_checkpoint() -> None:
    world, told = World(), list[CheckpointFailed | None]()
    world.master.handle(CheckpointRequested(told.append))
    world.run_until_idle()
    assert checkpoint_entries(world) == [1] and told == [None]


# ---- failures ---------------------------------------------------------------------------------------------------


def test_a_killed_slot_restarts_the_job_at_once_from_the_newest_checkpoint() -> None:
    world = World()
    world.at(160.0)
    world.kill(1)
    world.run_until_idle()
    deploy = seen_by(world, 0, Deploy)[-1]
    assert world.clock.now_ms == 160.0, "no delay"
    assert deploy.restore is not None and decode_metadata(deploy.restore, "").checkpoint_id == 2
    assert deploy.generation == Generation(0, 2) and deploy.restore_root is None
    assert [p.process for p in deploy.peers] == ["one-0-1", "one-1-2"]


def test_recovery_is_reported() -> None:
    world = World()
    world.at(60.0)
    world.kill(1)
    world.clock.now_ms = 70.0
    world.run_until_idle()
    (recovery,) = world.master.report.recoveries
    assert recovery.running_after_ms == 10.0 and recovery.restored_checkpoint == 1
    assert "slot 1 was lost" in recovery.cause
    assert world.master.report.state == "RUNNING" and world.master.report.restarts == 1
    assert world.master.report.generation == 2


def test_an_error_of_user_code_is_told_with_traceback_and_count_and_restarted() -> None:
    world = World()
    world.say(1, failed(1, Generation(0, 1)))
    world.run_until_idle()
    (warning,) = world.console.warnings
    assert warning.startswith("Traceback: user line\nValueError: 7 (subtask 2/2 of 'list', slot 1)")
    assert "Failure 1" in warning and "at once" in warning
    assert world.master.report.state == "RUNNING" and world.master.report.generation == 2


def test_without_restarts_the_job_fails_with_the_users_traceback_first() -> None:
    world = World({"restart-strategy.type": "none"})
    world.say(1, failed(1, Generation(0, 1)))
    world.run_until_idle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert str(world.master.outcome.error).startswith("Traceback: user line\n")
    assert world.cancelled


def test_a_lost_connection_between_slots_starts_the_next_generation() -> None:
    world = World()
    world.say(0, PeerLost(Generation(0, 1), 0, 1, "reset"))
    world.run_until_idle()
    assert world.master.report.generation == 2
    assert "slot 0 lost its connection to slot 1" in world.console.warnings[0]


def test_messages_of_an_old_generation_are_ignored() -> None:
    world = World()
    world.kill(1)
    world.run_until_idle()
    world.say(0, failed(0, Generation(0, 1)))
    world.run_until_idle()
    assert world.master.report.generation == 2 and world.master.report.restarts == 1


def test_what_is_being_published_when_a_slot_dies_is_restored() -> None:
    """The log entry may be there already: nothing may restart below it."""
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    assert world.work.waiting[0][0] == "log: CreateMetadata"
    world.kill(1)
    world.run_until_idle()
    assert world.master.report.generation == 1, "not deployed before it is known"
    world.work.is_paused = False
    world.run_until_idle()
    deploy = seen_by(world, 0, Deploy)[-1]
    assert deploy.generation == Generation(0, 2)
    assert deploy.restore is not None and decode_metadata(deploy.restore, "").checkpoint_id == 1
    assert checkpoint_entries(world)[0] == 1 and COMMITTED[:2] == [b"1-0", b"1-1"]


def test_a_commit_that_fails_restarts_the_job_and_is_repeated_before_the_next() -> None:
    world = World()
    FAILING_COMMITS[0] = 1
    world.at(50.0)
    assert "sink 'list' could not commit its output: OSError: target is full" in world.console.warnings[0]
    assert world.master.report.state == "RUNNING" and world.master.report.restarts == 1
    assert COMMITTED == [b"1-0", b"1-1", b"2-0", b"2-1"]


def test_unconfirmed_commits_ride_in_the_next_metadata() -> None:
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    while world.reports().get(1) != "completed":
        assert world.work.run_one()
    world.at(160.0)
    world.work.is_paused = False
    world.run_until_idle()
    metadata = read_metadata(world.store, "chk-2/_metadata")
    assert [c.data for c in metadata.unconfirmed_commits] == [b"1-0", b"1-1"]
    assert COMMITTED == [b"1-0", b"1-1", b"2-0", b"2-1"]


def test_a_damaged_checkpoint_is_never_skipped() -> None:
    world = World()
    world.at(160.0)
    (newest,) = [p for p in world.store.list("shared") if "_s0_c2_" in p]
    world.store.delete(newest)
    world.kill(1)
    world.run_until_idle()
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "FAILED"
    assert newest in str(outcome.error) and "/chk-1; rows" in str(outcome.error)
    assert "put out again" in str(outcome.error)
    assert world.store.list("chk-1"), "everything is kept"


def test_a_segment_that_turns_out_damaged_while_it_is_read_ends_the_job() -> None:
    world = World()
    world.at(60.0)
    world.muted = {Restore}
    world.kill(1)
    world.run_until_idle()
    world.say(0, failed(0, Generation(0, 2), "shared/x: checksum", SubtaskFailureReason.DAMAGE))
    world.run_until_idle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert "shared/x" in str(world.master.outcome.error) and world.store.list("chk-1")


def test_damage_that_is_found_while_the_job_runs_ends_it() -> None:
    """State may be loaded then. Without this: each restart meets it again."""
    world = World()
    world.at(60.0)
    world.kill(1)
    world.run_until_idle()
    generation = world.master.lifecycle.generation
    assert generation is not None and world.master.lifecycle.phase is Phase.RUNNING
    world.say(0, failed(0, generation, "shared/x: checksum", SubtaskFailureReason.DAMAGED_RANGE))
    world.run_until_idle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert "shared/x" in str(world.master.outcome.error) and world.store.list("chk-1"), "everything is kept"


def test_too_few_slots_is_a_clear_failure() -> None:
    world = World({"slot.request.timeout": "1 s"}, autostart=False)
    world.muted = {Register}
    world.register(0)
    world.at(1_000.0)
    assert world.master.outcome is not None
    assert "needs 2 slot(s), of which 1 registered" in str(world.master.outcome.error)


def test_a_slot_with_another_python_is_refused() -> None:
    world = World(autostart=False)
    world.say(0, Register(0, 1, 0, "one-0-1", 1, "far", 5000, "2.7.18", "0"))
    world.run_until_idle()
    assert world.master.outcome is not None
    assert "PYSPARK_PYTHON" in str(world.master.outcome.error) and "far" in str(world.master.outcome.error)


# ---- sources, storage in memory, console, report -----------------------------------------------------------------


def test_splits_are_handed_out_before_the_trigger_or_counted_in_its_snapshot() -> None:
    world = World()
    world.say(0, SplitsRequested(Generation(0, 1), 0, SubtaskId(0, 0)))
    world.at(50.0)
    assert [e.data for e in read_metadata(world.store, "chk-1/_metadata").enumerators] == [b"1"]
    kinds = [type(m) for m in world.seen[0]]
    assert kinds.index(SplitsAssigned) < kinds.index(TriggerCheckpoint)
    world.kill(1)
    world.run_until_idle()
    for _ in range(2):
        world.say(0, SplitsRequested(Generation(0, 2), 0, SubtaskId(0, 0)))
    world.run_until_idle()
    after = seen_by(world, 0, SplitsAssigned)[1:]
    assert [(m.splits, m.no_more) for m in after] == [([b"0"], False), ([], True)], "goes on from the checkpoint"


def test_storage_in_the_drivers_memory_has_a_limit_per_object() -> None:
    world = World({"penstock.checkpoint-storage.jobmanager.max-size": "10 b"}, identity=JobIdentity(JOB_ID, None))
    assert world.master.report.state == "RUNNING"
    assert ask(world, StoreRequest(0, 1, "shared/x", b"123456789")).error is None
    assert ask(world, StoreRequest(0, 2, "shared/x", None, 2, 3)).data == b"345"
    assert "execution.checkpointing.dir" in str(ask(world, StoreRequest(0, 3, "shared/y", b"12345678901")).error)
    assert ask(world, StoreRequest(0, 4, "shared/z")).error is not None


def ask(world: World, request: StoreRequest) -> StoreReply:
    world.say(0, request)
    world.run_until_idle()
    reply = seen_by(world, 0, StoreReply)[-1]
    assert isinstance(reply, StoreReply) and reply.request == request.request
    return reply


def test_a_job_in_memory_restarts_from_memory() -> None:
    world = World(identity=JobIdentity(JOB_ID, None))
    world.at(60.0)
    world.kill(0)
    world.run_until_idle()
    assert world.master.report.recoveries[0].restored_checkpoint == 1
    assert world.master.report.checkpoints[0].path is None


def test_printed_lines_reach_the_console() -> None:
    world = World()
    world.say(0, Printed(0, 3, ["a", "b"], True))
    assert world.console.lines == [(3, "a", True), (3, "b", True)]


def test_rates_are_differences_and_sums_survive_a_restart() -> None:
    world = World()

    def status(rows: int) -> SlotStatus:
        generation = world.slots[0].generation
        assert generation is not None
        return SlotStatus(generation, 0, [SubtaskStatus(1, 0, rows, 0, 0, 0, 0.5, 0.25, 0)], 1234)

    world.say(0, status(10))
    world.clock.now_ms = 500.0
    world.say(0, status(60))
    vertex = world.master.report.vertices[1]
    assert (vertex.rows_in, vertex.rows_in_per_s, vertex.busy_share) == (60, 100.0, 0.5)
    world.kill(1)
    world.run_until_idle()
    world.say(0, status(5))
    assert world.master.report.vertices[1].rows_in == 65
    assert world.master.report.slot_rss_bytes == (1234, 0) and world.master.report.slot_pids == (100, 101)


def test_a_missing_slot_has_no_process_in_the_report() -> None:
    """Process 0 would be the caller's whole process group to `os.kill`."""
    world = World()
    world.kill(1)
    assert world.master.report.slot_pids == (100, None)


def test_the_log_speaks_the_answers_of_the_protocol() -> None:
    world = World()
    assert isinstance(execute(world.store, ReadEntry(0)), Fence)
    assert Directories().stores == {}
