"""Tests the events between the life of a job and its checkpoints, in one machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.protocol.driver import commit_order, ending, recovery
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.coordinator import CoordinatorPhase, CoordinatorSettings
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    Deploy,
    FailureCause,
    FollowPublication,
    GenerationEnded,
    Restarting,
    StartRun,
    SubmitSlot,
    TriggerCheckpoint,
)
from penstock.protocol.driver.driver_machine import DriverMachine, Event
from penstock.protocol.driver.lifecycle import LifecycleSettings, Phase
from penstock.protocol.driver.published_checkpoints import FOLLOWS, Follow, PublishedKind
from penstock.protocol.driver.rescaling import NotRescaled, Rescale, RescalePhase, RestartWith
from penstock.protocol.driver.restarts import FixedDelay
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.metadata import Committable, Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.driver.started_lifecycle import register

G1, G2 = Generation(7, 1), Generation(7, 2)


def machine(**coordinator: Any) -> DriverMachine:
    settings = CoordinatorSettings(**{"interval_ms": 100.0, **coordinator})
    return DriverMachine(LifecycleSettings(2), settings, FixedDelay(9, 50.0), lambda: 0.0, ["source"], has_log=True)


FIRST = (recovery.StoreOpened(), recovery.LogTaken(has_checkpoint=False, fence=7))


def start(driver: DriverMachine, generation: Generation, now_ms: float, found: Sequence[Event] = FIRST) -> list[Any]:
    """Let the job gather its slots, and run. `found`: the answers of its recovery."""
    effects: list[Any] = []
    brought_up: list[Event] = [
        *(events.Registered(register(slot, f"p{slot}")) for slot in range(2)),
        *found,
        *(events.SlotConnected(f"p{slot}", generation) for slot in range(2)),
        *(events.SlotRestored(f"p{slot}", generation) for slot in range(2)),
        events.Running(generation, frozenset({0, 1}), 2, 0.9, False),
    ]
    for event in brought_up:
        effects += driver.handle(event, now_ms)
    return effects


def running(**coordinator: Any) -> DriverMachine:
    driver = machine(**coordinator)
    driver.handle(events.Started(), 0.0)
    effects = start(driver, G1, 1.0)
    assert [type(e) for e in effects if isinstance(e, (Deploy, StartRun))] == [Deploy, StartRun]
    return driver


def trigger(driver: DriverMachine, now_ms: float) -> list[int]:
    effects = driver.handle(events.CheckpointAsked(), now_ms)
    return [e.barrier.checkpoint_id for e in effects if isinstance(e, TriggerCheckpoint)]


def test_a_failure_ends_the_checkpoints_of_its_generation_right_behind_its_end() -> None:
    driver = running()
    assert trigger(driver, 2.0) == [1]
    effects = driver.handle(events.Failed(FailureCause("it broke"), G1), 3.0)
    assert [type(e) for e in effects[:3]] == [GenerationEnded, CheckpointAborted, Restarting]
    aborted = effects[1]
    assert isinstance(aborted, CheckpointAborted) and aborted.detail == "it broke" and not aborted.fails_job
    assert driver.coordinator.phase is CoordinatorPhase.STOPPED and driver.lifecycle.phase is Phase.GATHERING


def test_too_many_failed_checkpoints_fail_the_generation_before_anything_else_is_decided() -> None:
    driver = running(concurrent_max=2, tolerable_failures_max=0)
    assert [*trigger(driver, 2.0), *trigger(driver, 3.0)] == [1, 2]
    decline = Decline(G1, 0, 1, SubtaskId(0, 1), FailureReason.DECLINED, "no space")
    effects = driver.handle(decline, 4.0)
    first, ended, other, restarting = effects[:4]
    assert isinstance(first, CheckpointAborted) and first.checkpoint_id == 1 and first.fails_job
    assert isinstance(ended, GenerationEnded) and "tolerable failure threshold" in ended.cause
    assert isinstance(other, CheckpointAborted) and other.checkpoint_id == 2 and not other.fails_job
    assert isinstance(restarting, Restarting) and driver.lifecycle.restarts.failures == 1


def test_time_ends_a_silent_generation_before_it_triggers_a_checkpoint() -> None:
    driver = running()
    silent_ms = driver.lifecycle.settings.heartbeat_timeout_ms + 2.0
    effects = driver.handle(events.TimePassed(), silent_ms)
    assert any(isinstance(e, GenerationEnded) for e in effects)
    assert not any(isinstance(e, TriggerCheckpoint) for e in effects)


def test_there_is_one_deadline_and_one_story() -> None:
    driver = running()
    life_ms, coordinator_ms = driver.lifecycle.next_deadline_ms(), driver.coordinator.next_deadline_ms()
    assert life_ms is not None and coordinator_ms is not None
    assert driver.next_deadline_ms() == min(life_ms, coordinator_ms)
    driver.handle(events.Failed(FailureCause("it broke"), G1), 5.0)
    effects = driver.handle(events.TimePassed(), 60.0)
    assert effects == [recovery.AwaitPublications(3)]
    found = [recovery.PublicationsIdle(3, needs_slots=True, holds_files=False)]
    told = driver.story.text()
    assert "restored (a slot)  restoring → running: StartRun" in told
    assert "stopped (the JobMaster)  running → stopped" in told
    for slot in range(2):
        driver.handle(events.SlotLeft(f"p{slot}", G1), 61.0)
    assert any(isinstance(e, StartRun) for e in start(driver, G2, 62.0, found)), "the next generation runs"


def published(driver: DriverMachine, kind: PublishedKind) -> list[Any]:
    """Let the newest checkpoint be acknowledged and published."""
    (pending,) = driver.coordinator.pending.ids
    for slot in range(2):
        snapshot = SubtaskSnapshot(0, slot, [], [], [], [], [], [], [])
        driver.handle(SlotAck(G1, slot, pending, Segment(f"shared/{pending}-{slot}", 10), [snapshot]), 3.0)
    return driver.handle(events.CheckpointPublished(pending, kind), 4.0)


def steps(effects: list[Any]) -> list[Follow]:
    return [e.step for e in effects if isinstance(e, FollowPublication)]


def test_what_follows_a_published_checkpoint_is_a_row_of_a_table() -> None:
    driver = running()
    trigger(driver, 2.0)
    decided = {Follow.COUNT_PROGRESS, Follow.COMPLETE, Follow.NEED_NO_SLOTS, Follow.COMPLETE_LAST, Follow.RESCALE}
    row = FOLLOWS[PublishedKind.CHECKPOINT]
    assert steps(published(driver, PublishedKind.CHECKPOINT)) == [step for step in row if step not in decided]
    assert driver.coordinator.completed == 1 and driver.lifecycle.restarts._progressed
    assert not driver.lifecycle.is_finishing and driver.coordinator.may_trigger


def test_the_final_checkpoint_ends_all_others_and_needs_no_slots() -> None:
    driver = running(concurrent_max=2)
    trigger(driver, 2.0)
    effects = published(driver, PublishedKind.FINAL)
    assert driver.lifecycle.is_finishing and driver.coordinator.phase is CoordinatorPhase.FINAL
    assert isinstance(driver.handle(events.Finished(), 5.0)[0], GenerationEnded)
    order = steps(effects)
    assert order.index(Follow.COMMIT_LAST) < order.index(Follow.RETRY_COMMITS), "the older ones that failed"


def test_a_failure_between_the_entry_and_its_steps_restarts_from_the_new_checkpoint() -> None:
    """The first steps are those that a restart needs; whoever is told of the checkpoint may rely on them."""
    for kind in (PublishedKind.CHECKPOINT, PublishedKind.FINAL):
        row = FOLLOWS[kind]
        told = min(row.index(step) for step in (Follow.NOTIFY_SLOTS, Follow.DELETE_UNNEEDED))
        assert row.index(Follow.RESTORE_FROM) < told
        assert row[-1] in (Follow.RESCALE, Follow.COMPLETE_LAST), "what restarts or ends the job comes last"


def test_the_machine_knows_whether_the_end_of_the_job_deletes_nothing() -> None:
    driver = running()
    driver.handle(events.Failed(FailureCause("it broke"), G1), 3.0)
    assert not driver.keeps_everything
    for now_ms, files, keeps in [(60.0, recovery.Files.UNREACHABLE, True), (120.0, recovery.Files.COMPLETE, False)]:
        [awaited] = driver.handle(events.TimePassed(), now_ms)
        assert isinstance(awaited, recovery.AwaitPublications)
        driver.handle(recovery.PublicationsIdle(awaited.attempt, needs_slots=True, holds_files=True), now_ms)
        driver.handle(recovery.FilesChecked(awaited.attempt, files, "a file"), now_ms)
        assert driver.keeps_everything is keeps, "until the storage can be read again"
    driver.handle(events.Failed(FailureCause("a file is damaged", restartable=False, keeps_everything=True)), 6.0)
    assert driver.keeps_everything and driver.lifecycle.is_over
    abandoned = running()
    abandoned.handle(events.Abandoned("the store is gone"), 3.0)
    assert abandoned.keeps_everything


def test_the_machine_knows_whether_the_log_is_its_own() -> None:
    driver = machine()
    driver.handle(events.Started(), 0.0)
    assert not driver.owns_log, "until its fence counts, another driver may own what lies in the directory"
    driver.handle(recovery.StoreOpened(), 1.0)
    driver.handle(recovery.LogTaken(has_checkpoint=False, fence=7), 1.0)
    assert driver.owns_log and driver.fence == 7
    driver.handle(events.LogLost("another driver has fenced the log"), 2.0)
    assert not driver.owns_log and driver.keeps_everything and driver.lifecycle.is_over
    refused = machine()
    refused.handle(events.Started(), 0.0)
    refused.handle(recovery.StoreOpened(), 1.0)
    refused.handle(recovery.Refused("taken over", lost_log=True), 1.0)
    assert not refused.owns_log and refused.lifecycle.is_over


A = Committable("sink", b"a", 1)


def test_a_commit_that_fails_ends_the_generation_and_is_retried_by_the_recovery() -> None:
    driver = running()
    assert driver.handle(commit_order.Added(1, (A,)), 3.0) == [commit_order.Commit((A,))]
    effects = driver.handle(commit_order.Refused(FailureCause("the sink is full")), 4.0)
    assert [type(e) for e in effects[:2]] == [GenerationEnded, Restarting]
    [awaited] = driver.handle(events.TimePassed(), 60.0)
    assert isinstance(awaited, recovery.AwaitPublications)
    idle = recovery.PublicationsIdle(awaited.attempt, needs_slots=True, holds_files=False)
    assert driver.handle(idle, 61.0) == [commit_order.Commit((A,))]


def test_a_final_commit_that_fails_is_tried_again_without_slots() -> None:
    driver = running()
    driver.handle(commit_order.Added(1, (A,)), 3.0)
    driver.handle(events.Finishing(), 3.0)
    full = FailureCause("the sink is full")
    assert driver.handle(commit_order.Refused(full), 4.0) == [ending.WarnOfRefusal(full)]
    retry_ms = 4.0 + ending.FINAL_COMMIT_PAUSE_MS
    assert commit_order.Commit((A,)) in driver.handle(events.TimePassed(), retry_ms)


def test_the_end_waits_for_the_commit_that_is_under_way() -> None:
    driver = running()
    driver.handle(commit_order.Added(1, (A,)), 3.0)
    driver.handle(events.Cancelled(suspends=True), 4.0)
    effects = [e for slot in range(2) for e in driver.handle(events.SlotLeft(f"p{slot}", Generation(99, 0)), 5.0)]
    assert effects[-2:] == [ending.ReleaseSlots(), ending.AwaitPublications()]
    assert driver.handle(ending.NothingPublishing(), 6.0) == []
    driver.handle(events.Cancelled(), 7.0)
    assert not driver.suspends, "it can still be cancelled"
    assert driver.handle(commit_order.Committed(), 8.0) == [commit_order.Confirm(1), ending.AwaitCommits()]


# ---- rescales -------------------------------------------------------------------------------------------------------

TWO, THREE = Rescale(1, 2), Rescale(2, 3)
ALL_THERE = events.Facts(capacity=2)


def rescaling(driver: DriverMachine) -> int:
    """Order a rescale for which all slots are there; return its checkpoint."""
    effects = driver.handle(events.RescaleOrdered(TWO, ALL_THERE), 2.0)
    (trigger,) = [e for e in effects if isinstance(e, TriggerCheckpoint)]
    return trigger.barrier.checkpoint_id


def test_a_rescale_restarts_the_job_last_of_all_that_follows_its_checkpoint() -> None:
    driver = running()
    rescaling(driver)
    effects = published(driver, PublishedKind.CHECKPOINT)
    assert effects[-1] == RestartWith(TWO)
    restarted = driver.handle(events.Rescaled(2, "it continues in other slots"), 5.0)
    assert isinstance(restarted[0], GenerationEnded) and driver.lifecycle.restarts.count == 1


def test_a_checkpoint_of_somebody_else_restarts_no_rescale() -> None:
    driver = running(concurrent_max=2)
    trigger(driver, 1.5)
    assert not any(isinstance(e, RestartWith) for e in published(driver, PublishedKind.CHECKPOINT))


def test_a_failure_lets_the_rescale_wait_for_the_next_generation() -> None:
    driver = running()
    rescaling(driver)
    effects = driver.handle(events.Failed(FailureCause("it broke"), G1), 3.0)
    assert not any(isinstance(e, NotRescaled) for e in effects) and driver.rescaling.phase is RescalePhase.WAITING


def test_a_checkpoint_that_fails_gives_the_rescale_up_and_the_job_continues() -> None:
    driver = running(tolerable_failures_max=9)
    number = rescaling(driver)
    decline = Decline(G1, 0, number, SubtaskId(0, 1), FailureReason.DECLINED, "no space")
    (told,) = [e for e in driver.handle(decline, 3.0) if isinstance(e, NotRescaled)]
    assert told.why.endswith("no space); the job continues as it was") and driver.rescaling.is_idle
    assert driver.lifecycle.phase is Phase.RUNNING


def test_slots_that_are_missing_are_submitted_first_and_waited_for() -> None:
    driver = running()
    effects = driver.handle(events.RescaleOrdered(THREE, events.Facts()), 2.0)
    assert effects == [SubmitSlot(2)]
    registered = driver.handle(events.Registered(register(2, "p2")), 3.0)
    assert not any(isinstance(e, TriggerCheckpoint) for e in registered), "the caller lets the machine look"
    looked = driver.handle(events.Looked(events.Facts()), 3.0)
    assert any(isinstance(e, TriggerCheckpoint) for e in looked)


def test_whoever_has_asked_for_a_savepoint_is_answered_last() -> None:
    for kind in (PublishedKind.SAVED, PublishedKind.STOPPED):
        assert FOLLOWS[kind][-1] is Follow.ANSWER, "what is answered must not fail any more"
    assert FOLLOWS[PublishedKind.STOPPED][:-1] == FOLLOWS[PublishedKind.FINAL]
    assert Follow.COMMIT not in FOLLOWS[PublishedKind.SAVED] and Follow.RESTORE_FROM not in FOLLOWS[PublishedKind.SAVED]
