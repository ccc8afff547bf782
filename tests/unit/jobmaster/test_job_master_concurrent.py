"""Tests the JobMaster with several checkpoints in progress at once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.job_execution import CheckpointFailed
from penstock.jobmaster.ports import CheckpointRequested
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import TriggerCheckpoint
from tests.unit.jobmaster.master_world import COMMITTED, CountedSplits, World, checkpoint_entries, reset_target, seen_by

THREE = {"execution.checkpointing.max-concurrent-checkpoints": "3"}


@pytest.fixture(autouse=True)
def fresh_target() -> None:
    reset_target()


def with_three_pending() -> World:
    world = World(THREE)
    world.muted.add(TriggerCheckpoint)
    world.at(50.0)
    for _ in range(2):
        world.master.handle(CheckpointRequested(lambda failed: None))
    world.run_until_idle()
    assert [m.barrier.checkpoint_id for m in seen_by(world, 0, TriggerCheckpoint)] == [1, 2, 3]
    return world


def acknowledge(world: World, *checkpoint_ids: int) -> None:
    for checkpoint_id in checkpoint_ids:
        for slot in (0, 1):
            world.say(slot, world.ack(slot, checkpoint_id))
    world.run_until_idle()


def test_what_is_acknowledged_in_order_is_published_in_order() -> None:
    world = with_three_pending()
    acknowledge(world, 1, 2, 3)
    assert checkpoint_entries(world) == [1, 2, 3]
    assert COMMITTED == [b"1-0", b"1-1", b"2-0", b"2-1", b"3-0", b"3-1"]


def test_an_older_one_that_is_acknowledged_during_the_publication_of_a_newer_one_is_subsumed() -> None:
    world = with_three_pending()
    acknowledge(world, 3, 2)
    assert checkpoint_entries(world) == [3]
    assert {number: status for number, status in world.reports().items() if number < 3} == dict.fromkeys(
        (1, 2), "failed"
    )
    assert COMMITTED == [b"3-0", b"3-1"] and len(world.store.list("shared")) == 2


def test_a_trigger_behind_one_that_fails_the_job_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """[A checkpoint that completes frees three places; the first trigger fails the job, and the second finds no
    generation.]"""
    world = with_three_pending()
    for _ in range(3):
        world.master.handle(CheckpointRequested(lambda failed: None))
    working: Any = CountedSplits.snapshot

    def fails_once(self: CountedSplits) -> bytes:
        monkeypatch.setattr(CountedSplits, "snapshot", working)
        raise OSError("the listing is gone")

    monkeypatch.setattr(CountedSplits, "snapshot", fails_once)
    acknowledge(world, 3)
    assert checkpoint_entries(world) == [3] and world.master.lifecycle.restarts.count == 1
    assert world.master.lifecycle.generation == Generation(0, 2)
    sent = [m for m in seen_by(world, 0, TriggerCheckpoint) if m.generation == Generation(0, 1)]
    assert [m.barrier.checkpoint_id for m in sent] == [1, 2, 3], "none of those that waited was sent"


def test_a_user_hears_why_there_is_no_checkpoint() -> None:
    world, told = World({"restart-strategy.type": "fixed-delay"}), list[CheckpointFailed | None]()
    world.kill(0)
    world.master.handle(CheckpointRequested(told.append))
    assert str(told[0]).startswith("no checkpoint is triggered: the job is not running (it starts, or restarts)")
    unchecked = World({"execution.checkpointing.interval": ""})
    unchecked.master.handle(CheckpointRequested(told.append))
    assert "set execution.checkpointing.interval" in str(told[1])
