"""Rescales of a running job: slots first, then a checkpoint behind which nothing is taken, then a restart from it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.job_execution import RescaleFailed, SavepointFailed
from penstock.jobmaster.ports import CancelRequested, RescaleOrder, RescaleRequested, SavepointOrder, SavepointRequested
from penstock.protocol.driver.rescaling import SLOTS_LIMIT_MS
from penstock.protocol.values.elements import SnapshotKind, SubtaskId
from penstock.protocol.values.messages import Decline, Deploy, Register, TriggerCheckpoint
from penstock.protocol.values.reasons import FailureReason
from tests.unit.jobmaster.master_world import World, failed, seen_by, two_vertices

SELDOM = {"execution.checkpointing.interval": "1 h"}


class Answers:
    def __init__(self) -> None:
        self.given: list[RescaleFailed | None] = []

    def ask(self, world: World, parallelism: Any) -> None:
        world.master.handle(RescaleRequested(RescaleOrder(parallelism, self.given.append)))
        world.run_until_idle()

    @property
    def refusal(self) -> str:
        (refused,) = self.given
        assert refused is not None
        return str(refused)


def fail(world: World, slot: int) -> None:
    """Let an operator in the slot raise."""
    generation = world.slots[slot].generation
    assert generation is not None
    world.say(slot, failed(slot, generation))
    world.run_until_idle()


def deployments(world: World, slot: int) -> int:
    return len(seen_by(world, slot, Deploy))


def test_a_job_grows_from_a_checkpoint_of_its_own_in_living_processes() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    before = {slot.process for slot in world.slots.values()}
    answers.ask(world, 3)
    assert answers.given == [None]
    trigger = seen_by(world, 0, TriggerCheckpoint)[0]
    assert trigger.barrier.kind is SnapshotKind.RESCALE and trigger.barrier.starts_unaligned
    assert {slot.process for slot in world.slots.values()} > before, "nobody was replaced"
    assert [deployments(world, slot) for slot in range(3)] == [2, 2, 1]
    report = world.master.report
    assert (report.state, report.slots_needed, len(report.slot_rss_bytes)) == ("RUNNING", 3, 3)
    (done,) = report.rescales
    assert (done.before, done.after, done.reason) == ((2, 2), (3, 3), "requested")
    world.at(10.0)
    fail(world, 2)
    world.at(5_000.0)
    assert world.master.report.state == "RUNNING" and deployments(world, 1) == 3, "restarts run as rescaled"


def test_a_job_shrinks_and_the_process_that_it_does_not_need_leaves() -> None:
    world, answers = World(dict(SELDOM), graph=two_vertices(3)), Answers()
    answers.ask(world, 2)
    assert answers.given == [None] and sorted(world.slots) == [0, 1]
    assert world.master.lifecycle.roster.slots == 2 and world.master.report.slots_needed == 2
    answers.ask(world, 3)
    assert answers.given == [None, None] and world.submissions[2] == 2, "it is submitted again"


def test_the_job_waits_for_the_slots_that_are_missing_and_runs_meanwhile() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.muted.add(Register)
    answers.ask(world, 4)
    assert sorted(world.slots) == [0, 1, 2, 3] and not seen_by(world, 0, TriggerCheckpoint)
    assert world.master.report.state == "RUNNING" and answers.given == []
    world.muted.clear()
    world.run_until_idle()
    assert answers.given == [None]


def test_the_job_goes_on_without_slots_that_do_not_come_in_time() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.muted.add(Register)
    answers.ask(world, 3)
    world.at(SLOTS_LIMIT_MS - 1)
    assert not seen_by(world, 0, TriggerCheckpoint)
    world.at(SLOTS_LIMIT_MS)
    assert seen_by(world, 0, TriggerCheckpoint), "others will play the missing slot"
    assert world.master.lifecycle.roster.missing == [2]


def test_where_no_more_processes_can_come_nobody_waits_for_them() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.capacity = 2
    world.muted.add(Register)
    answers.ask(world, 3)
    assert seen_by(world, 0, TriggerCheckpoint)


def test_a_checkpoint_that_fails_leaves_the_job_as_it_was_and_releases_the_slots() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.muted.add(TriggerCheckpoint)
    answers.ask(world, 3)
    generation = world.slots[0].generation
    assert generation is not None and 2 in world.slots
    (trigger,) = seen_by(world, 0, TriggerCheckpoint)
    decline = Decline(generation, 0, trigger.barrier.checkpoint_id, SubtaskId(0, 0), FailureReason.DECLINED, "no")
    world.say(0, decline)
    world.run_until_idle()
    assert "its checkpoint failed (CHECKPOINT_DECLINED: declined by subtask 1 of" in answers.refusal
    assert 2 not in world.slots and world.master.report.slots_needed == 2 and world.master.report.rescales == ()
    assert world.master.report.state == "RUNNING" and deployments(world, 0) == 1


def test_a_failure_meanwhile_restarts_the_job_as_it_was_and_then_it_is_rescaled() -> None:
    world, answers = World({**SELDOM, "restart-strategy.type": "fixed-delay"}), Answers()
    world.muted.add(TriggerCheckpoint)
    answers.ask(world, 3)
    world.muted.clear()
    fail(world, 0)
    world.at(5_000.0)
    assert answers.given == [None]
    assert deployments(world, 0) == 3, "once as it was, once rescaled"


def test_rescales_queue_up_behind_each_other() -> None:
    world, first, second = World(dict(SELDOM)), Answers(), Answers()
    world.muted.add(TriggerCheckpoint)
    first.ask(world, 3)
    second.ask(world, 1)
    assert first.given == second.given == []
    world.muted.clear()
    (trigger,) = seen_by(world, 0, TriggerCheckpoint)
    for slot in (0, 1):
        world.say(slot, world.ack(slot, trigger.barrier.checkpoint_id))
    world.run_until_idle()
    assert first.given == second.given == [None]
    assert [r.after for r in world.master.report.rescales] == [(3, 3), (1, 1)]


def test_what_is_so_already_is_done_at_once() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    answers.ask(world, 2)
    assert answers.given == [None] and deployments(world, 0) == 1


def test_two_who_ask_for_the_same_restart_the_job_once() -> None:
    world, first, second, third = World(dict(SELDOM)), Answers(), Answers(), Answers()
    world.muted.add(TriggerCheckpoint)
    for answers, parallelism in ((first, 3), (second, 3), (third, 1)):
        answers.ask(world, parallelism)
        assert answers.given == []
    world.muted.clear()
    (trigger,) = seen_by(world, 0, TriggerCheckpoint)
    for slot in (0, 1):
        world.say(slot, world.ack(slot, trigger.barrier.checkpoint_id))
    world.run_until_idle()
    assert first.given == second.given == third.given == [None]
    assert [r.after for r in world.master.report.rescales] == [(3, 3), (1, 1)]


@pytest.mark.parametrize(
    ("options", "parallelism", "told"),
    [
        (SELDOM, 0, "must be a whole number above 0"),
        (SELDOM, 129, "its max parallelism is 128"),
        ({"execution.checkpointing.interval": ""}, 3, "set execution.checkpointing.interval"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, str], parallelism: int, told: str) -> None:
    world, answers = World(dict(options)), Answers()
    answers.ask(world, parallelism)
    assert told in answers.refusal and sorted(world.slots) == [0, 1]


def test_the_end_of_the_job_answers_everybody() -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.muted.add(TriggerCheckpoint)
    answers.ask(world, 3)
    world.master.handle(CancelRequested())
    world.run_until_idle()
    assert "the job has ended" in answers.refusal
    late = Answers()
    late.ask(world, 3)
    assert late.refusal == "the job has ended"


@pytest.mark.parametrize("stops", [False, True])
def test_no_savepoint_is_taken_while_the_job_is_rescaled(stops: bool) -> None:
    world, answers = World(dict(SELDOM)), Answers()
    world.muted.add(TriggerCheckpoint)
    answers.ask(world, 3)
    told: list[str | SavepointFailed] = []
    world.master.handle(SavepointRequested(SavepointOrder(told.append, "/savepoints", stops=stops)))
    world.run_until_idle()
    assert "the job is being rescaled, or restored at another parallelism; try again" in str(told[0])
