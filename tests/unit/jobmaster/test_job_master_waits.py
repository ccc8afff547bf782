"""Tests that whatever the JobMaster waits for has a limit, and a message that names who did not answer."""

from __future__ import annotations

import cloudpickle

from penstock.common.configuration import Configuration
from penstock.graph.deployment import DeploymentPlan
from penstock.jobmaster.ports import CancelRequested
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Deploy, Message, Restore, Restored, SlotStatus, SubtaskFailed
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.process.slot import Slot
from penstock.storage.memory import MemoryStore
from tests.unit.jobmaster.manual_ports import ManualClock, QueuedWork
from tests.unit.jobmaster.master_world import COMMITTED, World, checkpoint_entries, reset_target, seen_by
from tests.unit.runtime.jobs.small_job import graph_of

LIMIT = {"execution.checkpointing.timeout": "60 s", "heartbeat.timeout": "1 h"}


def hanging_commits() -> tuple[World, QueuedWork]:
    """A world whose sinks commit when `run_one` is called, and until then hang."""
    reset_target()
    commits = QueuedWork()
    return World(LIMIT, commit_work=commits), commits


def test_a_committer_that_hangs_holds_up_neither_checkpoints_nor_a_recovery() -> None:
    world, commits = hanging_commits()
    world.at(250.0)
    assert len(checkpoint_entries(world)) >= 3 and not COMMITTED
    world.kill(0)
    world.at(260.0)
    assert world.master.report.state == "RUNNING" and len(seen_by(world, 0, Deploy)) == 2
    while commits.run_one():
        pass
    assert COMMITTED[:2] == [b"1-0", b"1-1"]


def test_a_committer_that_hangs_is_named_and_ends_the_job_at_its_limit() -> None:
    world, _ = hanging_commits()
    world.at(31_000.0)
    assert any("sink" in w and "checkpoints go on meanwhile" in w for w in world.console.warnings)
    assert world.master.outcome is None
    world.at(95_000.0)
    outcome = world.master.outcome
    assert outcome is not None and outcome.state == "FAILED" and world.master.lifecycle.restarts.count == 0
    assert "has not finished committing its output after 60 s (execution.checkpointing.timeout)" in str(outcome.error)
    assert outcome.resume_from is not None, "everything is kept"


def test_a_committer_that_hangs_does_not_hold_up_the_end_for_ever() -> None:
    world, _ = hanging_commits()
    world.at(60.0)
    world.master.handle(CancelRequested())
    world.run_until_idle()
    world.at(31_000.0)
    assert world.master.outcome is not None
    assert "did not finish committing its output within 30 s" in world.console.warnings[-1]


def test_a_slot_that_does_not_restore_is_a_failure_that_names_slot_and_operator() -> None:
    world = World(LIMIT, autostart=False)
    world.muted.add(Restore)
    world.run_until_idle()
    generation = world.slots[1].generation
    assert generation is not None
    world.say(0, Restored(generation, 0, 0))
    world.say(1, SlotStatus(generation, 1, [], 1, ["enrich (2/2)"]))
    world.at(59_000.0)
    assert world.master.lifecycle.restarts.failures == 0
    world.at(60_000.0)
    told = "\n".join(world.console.warnings)
    assert "slot(s) 1 (host) did not restore" in told and "'enrich (2/2)' did not come to an end" in told
    assert world.master.lifecycle.restarts.failures == 1


class Sent:
    """The JobMaster's end of a slot's connection, and its data connections."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message, *_: object) -> None:
        self.messages.append(message)

    def connect(self, peers: object, generation: object) -> None: ...

    def disconnect(self) -> None: ...


class Idle:
    """A driver of runners that gives none of them a turn."""

    def start(self, runner: object) -> None: ...

    def run_apart(self, work: object) -> None: ...

    def when_done(self, runners: object, timeout_ms: float, done: object) -> None: ...


def test_an_error_while_a_slot_is_told_to_restore_reaches_the_job_master() -> None:
    sent, generation = Sent(), Generation(0, 1)
    store = MemoryStore()
    slot = Slot(0, ManualClock(), sent, sent, Idle(), lambda root, fsync: store, lambda: "r")  # type: ignore[arg-type]
    graph = graph_of(lambda environment: environment.from_collection([1, 2]).print())
    plan = cloudpickle.dumps(DeploymentPlan("0" * 32, graph, Configuration(), "one", "/job", True))
    slot.on_message(Deploy(generation, 0, [], plan, b"no metadata of ours", None))
    slot.on_message(Restore(generation))
    (failed,) = [m for m in sent.messages if isinstance(m, SubtaskFailed)]
    assert failed.generation == generation and failed.reason is SubtaskFailureReason.DAMAGE
