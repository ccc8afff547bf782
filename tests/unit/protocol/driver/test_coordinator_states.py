"""Tests the states of a checkpoint, the phases of the coordinator, and the story that they tell."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.coordinator import CoordinatorPhase
from penstock.protocol.driver.pending_checkpoints import CheckpointState
from penstock.protocol.machine import IllegalEvent
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.driver.test_coordinator import G2, SLOTS, ack, complete, decline, started


def test_a_checkpoint_goes_from_its_trigger_to_one_of_two_ends() -> None:
    coordinator = started(interval_ms=1000.0, tolerable_failures_max=9)
    assert coordinator.pending.state_of(1) is CheckpointState.TRIGGERED
    coordinator.on_ack(ack(1, 0), 1.0)
    assert coordinator.pending.state_of(1) is CheckpointState.TRIGGERED
    coordinator.on_ack(ack(1, 1), 2.0)
    assert coordinator.pending.state_of(1) is CheckpointState.PUBLISHING
    coordinator.on_published(1, False, 3.0)
    assert coordinator.pending.state_of(1) is CheckpointState.PUBLISHED
    coordinator.request(4.0)
    coordinator.on_decline(decline(2), 5.0)
    assert coordinator.pending.state_of(2) is CheckpointState.ABORTED
    assert coordinator.pending.state_of(3) is CheckpointState.UNKNOWN


def test_the_coordinator_is_final_whether_a_generation_runs_or_not() -> None:
    coordinator = started()
    phases = [coordinator.phase]
    for subtask in (0, 1):
        coordinator.on_ack(ack(1, subtask, finished=True), 7.0)
        coordinator.on_end_of_data(SubtaskId(0, subtask), 7.0)
        phases.append(coordinator.phase)
    coordinator.on_stopped(8.0)
    phases.append(coordinator.phase)
    coordinator.on_published(1, True, 9.0)
    phases.append(coordinator.phase)
    running, ending = CoordinatorPhase.RUNNING, CoordinatorPhase.ENDING
    assert phases == [running, running, ending, CoordinatorPhase.STOPPED, CoordinatorPhase.FINAL]
    with pytest.raises(IllegalEvent, match="the checkpoint coordinator is final, and the event 'started' cannot come"):
        coordinator.on_running(G2, SLOTS, 2, 10.0)


def test_an_event_that_cannot_come_names_the_checkpoint_its_state_and_the_event() -> None:
    coordinator = started()
    with pytest.raises(IllegalEvent, match="checkpoint 1 is triggered, and the event 'published' cannot come then"):
        coordinator.on_published(1, False, 1.0)
    with pytest.raises(IllegalEvent, match="checkpoint 9 is unknown, and the event 'not published'"):
        coordinator.on_not_published(9, FailureReason.FINALIZE_FAILURE, "disk full", 1.0)
    coordinator.on_ack(ack(1, 0), 1.0)
    coordinator.on_ack(ack(1, 1), 2.0)
    with pytest.raises(IllegalEvent, match="checkpoint 1 is publishing, and the event 'trigger failed'"):
        coordinator.on_trigger_failed(1, "no", 3.0)
    with pytest.raises(IllegalEvent, match="the checkpoint coordinator is running, and the event 'started'"):
        coordinator.on_running(G2, SLOTS, 2, 4.0)


def test_the_story_tells_each_event_with_its_cause() -> None:
    coordinator = started(interval_ms=100.0, tolerable_failures_max=9)
    complete(coordinator, 1, 30.0)
    coordinator.on_time(100.0)
    coordinator.on_ack(ack(2, 1), 110.0)
    coordinator.on_decline(decline(2), 120.0)
    assert coordinator.story.text().splitlines() == [
        "0.0 ms  triggered 1 (the coordinator)  unknown → triggered: TriggerCheckpoint",
        "0.0 ms  started (the JobMaster)  stopped → running: TriggerCheckpoint",
        "30.0 ms  acknowledged 1 (slot 1)  triggered → publishing: PublishCheckpoint",
        "30.0 ms  published 1 (the JobMaster)  publishing → published",
        "100.0 ms  triggered 2 (the coordinator)  unknown → triggered: TriggerCheckpoint",
        "100.0 ms  time (time)  running: TriggerCheckpoint",
        "120.0 ms  declined 2 (subtask 2 of vertex 2)  triggered → aborted: CheckpointAborted, DiscardSegments",
    ]
