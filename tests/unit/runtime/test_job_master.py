"""The JobMaster over played slots: checkpoints become canonical and commit, failures restart from the newest one,
and a job ends leaving behind what it should."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.protocol import failure_reasons
from penstock.protocol.elements import Generation, SubtaskId
from penstock.protocol.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.log_operations import ReadEntry
from penstock.protocol.messages import (
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
    SubtaskFailed,
    SubtaskStatus,
    Trigger,
)
from penstock.runtime.job_events import CancelRequested, CheckpointRequested
from penstock.runtime.job_identity import CheckpointToStartFrom, JobIdentity
from penstock.runtime.job_master_log import carry_out
from penstock.storage.log import read_log
from penstock.storage.metadata import decode_metadata, read_metadata
from tests.unit.runtime.master_world import (
    COMMITTED,
    DIRECTORY,
    FAILING_COMMITS,
    JOB_ID,
    Directories,
    World,
    two_vertices,
)


@pytest.fixture(autouse=True)
def fresh_target() -> Iterator[None]:
    COMMITTED.clear()
    FAILING_COMMITS[0] = 0
    yield


def checkpoint_entries(world: World) -> list[int]:
    return [e.checkpoint_id for e in read_log(world.store) if isinstance(e, CheckpointEntry)]


def failed(slot: int, generation: Generation, error: str = "ValueError: 7") -> SubtaskFailed:
    return SubtaskFailed(generation, slot, SubtaskId(1, slot), "list", error, "Traceback: user line\n")


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
    assert world.master.report.latest_checkpoint_path == f"{DIRECTORY}/chk-1"


def test_commits_come_after_the_log_entry_and_never_before() -> None:
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    while not checkpoint_entries(world):
        assert COMMITTED == []
        assert world.work.run_one()
    assert COMMITTED == []
    world.work.is_paused = False
    world.settle()
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
    world.muted = {Trigger}
    world.at(50.0)
    world.say(0, world.ack(0, 1))
    generation = world.slots[1].generation
    assert generation is not None
    world.say(1, Decline(generation, 1, 1, SubtaskId(0, 1), failure_reasons.IO_EXCEPTION, "disk full"))
    world.muted = set()
    world.settle()
    assert world.master.report.failed == 1 and "disk full" in str(world.master.report.checkpoints[0].failure)
    assert not [p for p in world.store.list("shared") if "_c1_" in p]
    assert world.master.report.restarts == 1, "none is tolerated by default"
    assert "tolerable-failed-checkpoints" in world.console.warnings[0]


def test_incomplete_in_flight_data_fails_the_checkpoint_by_channel() -> None:
    world = World({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    world.muted = {Trigger}
    world.at(50.0)
    for slot in (0, 1):
        good = world.ack(slot, 1)
        good.subtasks[0].outputs[0].emitted[0] = 3
        world.say(slot, good)
    world.settle()
    failure = str(world.master.report.checkpoints[0].failure)
    assert "channel a-b-0-0[1 -> 0]: elements [0, 3)" in failure and failure_reasons.FINALIZE_FAILURE in failure
    assert checkpoint_entries(world) == []


def test_a_late_acknowledgement_is_deleted() -> None:
    world = World(
        {"execution.checkpointing.timeout": "20 ms", "execution.checkpointing.tolerable-failed-checkpoints": "9"}
    )
    world.muted = {Trigger}
    world.at(80.0)
    late = world.ack(0, 1)
    assert len(world.store.list("shared")) == 1
    world.say(0, late)
    world.settle()
    assert world.store.list("shared") == []


def test_a_user_may_ask_for_a_checkpoint() -> None:
    world = World()
    world.master.handle(CheckpointRequested())
    world.settle()
    assert checkpoint_entries(world) == [1]


# ---- failures ---------------------------------------------------------------------------------------------------


def test_a_killed_slot_restarts_the_job_at_once_from_the_newest_checkpoint() -> None:
    world = World()
    world.at(160.0)
    world.kill(1)
    world.settle()
    deploy = world_messages(world, 0, Deploy)[-1]
    assert world.clock.now_ms == 160.0, "no delay"
    assert deploy.restore is not None and decode_metadata(deploy.restore, "").checkpoint_id == 2
    assert deploy.generation == Generation(0, 2) and deploy.restore_root is None
    assert [p.process for p in deploy.peers] == ["one-0-1", "one-1-2"]


def world_messages(world: World, slot: int, kind: type) -> list:  # type: ignore[type-arg]
    return [m for m in world.seen[slot] if isinstance(m, kind)]


def test_recovery_is_reported() -> None:
    world = World()
    world.at(60.0)
    world.kill(1)
    world.clock.now_ms = 70.0
    world.settle()
    (recovery,) = world.master.report.recoveries
    assert recovery.running_after_ms == 10.0 and recovery.restored_checkpoint == 1
    assert "slot 1 was lost" in recovery.cause
    assert world.master.report.state == "RUNNING" and world.master.report.restarts == 1
    assert world.master.report.generation == 2


def test_an_error_of_user_code_is_told_with_traceback_and_count_and_restarted() -> None:
    world = World()
    world.say(1, failed(1, Generation(0, 1)))
    world.settle()
    (warning,) = world.console.warnings
    assert warning.startswith("Traceback: user line\nValueError: 7 (subtask 2/2 of 'list', slot 1)")
    assert "Failure 1" in warning and "at once" in warning
    assert world.master.report.state == "RUNNING" and world.master.report.generation == 2


def test_without_restarts_the_job_fails_with_the_users_traceback_first() -> None:
    world = World({"restart-strategy.type": "none"})
    world.say(1, failed(1, Generation(0, 1)))
    world.settle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert str(world.master.outcome.error).startswith("Traceback: user line\n")
    assert world.cancelled


def test_a_lost_connection_between_slots_starts_the_next_generation() -> None:
    world = World()
    world.say(0, PeerLost(Generation(0, 1), 0, 1, "reset"))
    world.settle()
    assert world.master.report.generation == 2
    assert "slot 0 lost its connection to slot 1" in world.console.warnings[0]


def test_messages_of_an_old_generation_are_ignored() -> None:
    world = World()
    world.kill(1)
    world.settle()
    world.say(0, failed(0, Generation(0, 1)))
    world.settle()
    assert world.master.report.generation == 2 and world.master.report.restarts == 1


def test_what_is_being_published_when_a_slot_dies_is_restored() -> None:
    """The log entry may be there already: nothing may restart below it."""
    world = World()
    world.work.is_paused = True
    world.at(50.0)
    assert world.work.waiting[0][0] == "log: CreateMetadata"
    world.kill(1)
    world.settle()
    assert world.master.report.generation == 1, "not deployed before it is known"
    world.work.is_paused = False
    world.settle()
    deploy = world_messages(world, 0, Deploy)[-1]
    assert deploy.generation == Generation(0, 2)
    assert decode_metadata(deploy.restore, "").checkpoint_id == 1
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
    while not checkpoint_entries(world):
        assert world.work.run_one()
    world.at(160.0)
    world.work.is_paused = False
    world.settle()
    metadata = read_metadata(world.store, "chk-2/_metadata")
    assert [c.data for c in metadata.unconfirmed_commits] == [b"1-0", b"1-1"]
    assert COMMITTED == [b"1-0", b"1-1", b"2-0", b"2-1"]


def test_a_damaged_checkpoint_is_never_skipped() -> None:
    world = World()
    world.at(160.0)
    (newest,) = [p for p in world.store.list("shared") if "_s0_c2_" in p]
    world.store.delete(newest)
    world.kill(1)
    world.settle()
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "FAILED"
    assert newest in str(outcome.error) and "chk-1/_metadata" in str(outcome.error)
    assert "put out again" in str(outcome.error)
    assert world.store.list("chk-1"), "everything is kept"


def test_a_segment_that_turns_out_damaged_while_it_is_read_ends_the_job() -> None:
    world = World()
    world.at(60.0)
    world.muted = {Restore}
    world.kill(1)
    world.settle()
    world.say(0, failed(0, Generation(0, 2), error="DamagedObject: shared/x: checksum"))
    world.settle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert "shared/x" in str(world.master.outcome.error) and world.store.list("chk-1")


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
    world.settle()
    assert world.master.outcome is not None
    assert "PYSPARK_PYTHON" in str(world.master.outcome.error) and "far" in str(world.master.outcome.error)


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
    world.settle()
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
    world.settle()
    assert world.master.outcome is not None and world.master.outcome.state == "FAILED"
    assert bool(world.store.list("chk-1")) is keeps


def test_cancel_waits_for_what_is_being_published() -> None:
    world = World({"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"})
    world.work.is_paused = True
    world.at(50.0)
    world.master.handle(CancelRequested())
    world.settle()
    assert world.master.outcome is None
    world.work.is_paused = False
    world.settle()
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
    assert second.master.restore_point is not None and second.master.restore_point.metadata.checkpoint_id == 1
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
    first.settle()
    second = World(directories=first.directories, resume=True, incarnation="two")
    fence = second.master.store.fence
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
    assert second.master.report.state == "RUNNING" and second.master.restore_point is None


def test_a_cancelled_job_that_kept_nothing_cannot_be_resumed() -> None:
    first = World()
    first.at(60.0)
    first.master.handle(CancelRequested())
    first.settle()
    second = World(directories=first.directories, resume=True, incarnation="two")
    assert second.master.outcome is not None and "kept no checkpoint" in str(second.master.outcome.error)


def test_a_new_job_starts_from_a_checkpoint_and_leaves_it_alone() -> None:
    first = World()
    first.at(60.0)
    other = "f" * 32
    identity = JobIdentity(other, f"/checkpoints/{other}", start_from=CheckpointToStartFrom(DIRECTORY, 1))
    second = World(directories=first.directories, identity=identity, incarnation="two")
    (deploy,) = world_messages(second, 0, Deploy)
    assert deploy.restore_root == DIRECTORY and deploy.restore is not None
    before = first.store.list("")
    second.at(1_000.0)
    assert set(before) <= set(first.store.list(""))
    (fence, *_) = read_log(first.directories.stores[f"/checkpoints/{other}"])
    assert isinstance(fence, Fence) and fence.restored_from == f"{DIRECTORY}/chk-1"
    assert second.master.report.checkpoints[-1].checkpoint_id > 2


def test_a_claimed_checkpoint_is_deleted_when_it_is_subsumed() -> None:
    first = World()
    first.at(60.0)
    other = "f" * 32
    identity = JobIdentity(other, f"/checkpoints/{other}", start_from=CheckpointToStartFrom(DIRECTORY, 1))
    second = World(
        {"execution.state-recovery.claim-mode": "CLAIM"},
        directories=first.directories,
        identity=identity,
        incarnation="two",
    )
    second.at(60.0)
    assert first.store.list("chk-1"), "one of two retained"
    second.at(160.0)
    assert not first.store.list("chk-1") and not [p for p in first.store.list("shared") if "_c1_" in p]


def test_a_checkpoint_that_is_not_there_is_refused_by_name() -> None:
    identity = JobIdentity(JOB_ID, DIRECTORY, start_from=CheckpointToStartFrom("/nowhere", 3))
    world = World(identity=identity)
    assert world.master.outcome is not None and "/nowhere/chk-3" in str(world.master.outcome.error)


def test_another_parallelism_is_refused_and_everything_kept() -> None:
    first = World()
    first.at(60.0)
    second = World(directories=first.directories, resume=True, incarnation="two", graph=two_vertices(3))
    assert second.master.outcome is not None and "parallelism" in str(second.master.outcome.error)
    assert first.store.list("chk-1")


def test_what_older_generations_left_behind_is_swept_after_a_grace_time() -> None:
    world = World({"heartbeat.timeout": "10 s"})
    world.at(60.0)
    world.store.put("shared/g0-1_one_s1_c9_dead", [b"orphan"])
    world.kill(1)
    world.settle()
    world.store.put("shared/g0-9_one_s1_c99_new", [b"of a younger generation"])
    for now_ms in range(5_000, 40_000, 5_000):
        beat(world)
        world.at(float(now_ms))
    assert "shared/g0-1_one_s1_c9_dead" in world.store.list("shared")
    beat(world)
    world.at(41_000.0)
    assert "shared/g0-1_one_s1_c9_dead" not in world.store.list("shared")
    assert "shared/g0-9_one_s1_c99_new" in world.store.list("shared")


def beat(world: World) -> None:
    for slot in world.slots.values():
        assert slot.generation is not None
        world.say(slot.index, SlotStatus(slot.generation, slot.index, [], 1))


# ---- sources, storage in memory, console, report -----------------------------------------------------------------


def test_splits_are_handed_out_before_the_trigger_or_counted_in_its_snapshot() -> None:
    world = World()
    world.say(0, SplitsRequested(Generation(0, 1), 0, SubtaskId(0, 0)))
    world.at(50.0)
    assert [e.data for e in read_metadata(world.store, "chk-1/_metadata").enumerators] == [b"1"]
    kinds = [type(m) for m in world.seen[0]]
    assert kinds.index(SplitsAssigned) < kinds.index(Trigger)
    world.kill(1)
    world.settle()
    for _ in range(2):
        world.say(0, SplitsRequested(Generation(0, 2), 0, SubtaskId(0, 0)))
    world.settle()
    after = world_messages(world, 0, SplitsAssigned)[1:]
    assert [(m.splits, m.no_more) for m in after] == [([b"0"], False), ([], True)], "goes on from the checkpoint"


def test_storage_in_the_drivers_memory_has_a_limit_per_object() -> None:
    world = World(
        {"penstock.checkpoint-storage.jobmanager.max-size": "10 b"}, identity=JobIdentity(JOB_ID, None)
    )
    assert world.master.report.state == "RUNNING"
    assert ask(world, StoreRequest(0, 1, "shared/x", b"123456789")).error is None
    assert ask(world, StoreRequest(0, 2, "shared/x", None, 2, 3)).data == b"345"
    assert "execution.checkpointing.dir" in str(ask(world, StoreRequest(0, 3, "shared/y", b"12345678901")).error)
    assert ask(world, StoreRequest(0, 4, "shared/z")).error is not None


def ask(world: World, request: StoreRequest) -> StoreReply:
    world.say(0, request)
    world.settle()
    reply = world_messages(world, 0, StoreReply)[-1]
    assert isinstance(reply, StoreReply) and reply.request == request.request
    return reply


def test_a_job_in_memory_restarts_from_memory() -> None:
    world = World(identity=JobIdentity(JOB_ID, None))
    world.at(60.0)
    world.kill(0)
    world.settle()
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
    world.settle()
    world.say(0, status(5))
    assert world.master.report.vertices[1].rows_in == 65
    assert world.master.report.slot_rss_bytes == (1234, 0) and world.master.report.slot_pids == (100, 101)


def test_the_log_speaks_the_answers_of_the_protocol() -> None:
    world = World()
    assert isinstance(carry_out(world.store, ReadEntry(0)), Fence)
    assert Directories().stores == {}
