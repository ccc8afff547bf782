"""Runs all subtasks of a job in the thread of a test: the real ones, over a store in memory and a clock that is driven.

There is no JobMaster: whoever drives the job triggers its checkpoints, and decides what is restored.
"""

from __future__ import annotations

import pickle
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Callable

from penstock.common.configuration import Configuration
from penstock.connectors.base import SplitEnumerator
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.operators.calls.call_runner import Invocation
from penstock.operators.calls.driven_calls import DrivenCalls
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.frames import CreditLimit, Frame
from penstock.protocol.values.messages import (
    CheckpointEnded,
    Decline,
    DrainReport,
    Message,
    ReachedEndOfData,
    ReleaseVertices,
    SlotAck,
    SplitsAssigned,
    SplitsRequested,
    StartRun,
    TriggerCheckpoint,
)
from penstock.protocol.values.metadata import EnumeratorState, Metadata
from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.subtask_factory import SubtaskFactory
from penstock.storage.local import LocalStore
from penstock.storage.store import ObjectStore
from penstock.testing.driven_clock import DrivenClock

if TYPE_CHECKING:
    from penstock.jobmaster.generations import JobDrain

_ROUNDS_MAX = 1_000_000
"""A job that takes so many rounds at one time never comes to rest."""


class PickledPlan:
    """Holds the plan of a job as slots get it, for all its attempts."""

    def __init__(self, graph: JobGraph, configuration: Configuration) -> None:
        self.graph = graph
        self.data = dumps(DeploymentPlan("job", graph, configuration, "inc", "memory", True))


class LocalJob:
    """Runs one attempt of a job. `restored`: the checkpoint to begin with. `number`: of the attempt, from 0."""

    def __init__(
        self,
        plan: PickledPlan,
        store: ObjectStore,
        clock: DrivenClock,
        restored: Metadata | None,
        number: int,
    ) -> None:
        self.graph = graph = plan.graph
        self.generation = Generation(1, number)
        self._store, self._clock, self._restored = store, clock, restored
        self._acks: dict[int, dict[int, SlotAck]] = {}
        self._barriers: dict[int, Barrier] = {}
        self._enumerated: dict[int, list[EnumeratorState]] = {}
        self._draining_at: dict[int, bool] = {}
        self._at_end: set[SubtaskId] = set()
        self._reports: deque[DrainReport] = deque()
        self._waiting: deque[SubtaskId] = deque()
        self._deployed: dict[SubtaskId, DeployedSubtask] = {}
        self._writers: list[SnapshotWriter] = []
        self.subtasks: dict[SubtaskId, Subtask] = {}
        self._turn = 0
        self._has_worked = False
        # Each slot has functions of its own, as where plans travel. So tests see what a copy of a function does.
        factories = [self._factory(pickle.loads(plan.data), slot) for slot in range(graph.slots)]
        self._enumerators = self._create_enumerators()
        self._drain = None if restored is None else self._draining(restored)
        for id, deployed in self._deployed.items():
            self.subtasks[id] = factories[id.subtask].open(deployed, restored, store)
        for subtask in self.subtasks.values():
            subtask.mailbox.post(StartRun(self.generation))
        if self._drain is not None:
            self._drain.begin()

    def _draining(self, restored: Metadata) -> JobDrain:
        # The driver's part is imported by tests that restart only: it takes longer than all of a short test.
        from penstock.jobmaster.generations import JobDrain

        return JobDrain(self.graph, restored, self.generation, lambda: list(self._barriers), self._release)

    def _factory(self, plan: DeploymentPlan, slot: int) -> SubtaskFactory:
        vertices = [v for v in plan.graph.vertices if slot < v.parallelism]
        writer = SnapshotWriter(
            self.generation,
            slot,
            len(vertices),
            self._store,
            lambda checkpoint_id: f"segments/{self.generation.counter}-{slot}-{checkpoint_id}",
            lambda checkpoint_id, directory: (LocalStore(directory), f"s{slot}_c{checkpoint_id}"),
            self._on_message,
            lambda checkpoint_id: None,
            self._clock,
        )
        self._writers.append(writer)
        resources = SlotResources(
            plan,
            self.generation,
            slot,
            self._clock,
            writer,
            lambda to, frame: self._deliver(frame),
            self._on_message,
            lambda subtask, checkpoint_id, reason: None,
            new_calls=self._new_calls,
        )
        factory = SubtaskFactory(resources)
        for vertex in vertices:
            self._deployed[SubtaskId(vertex.index, slot)] = factory.build(vertex)
        return factory

    def _new_calls(self, invocation: Invocation) -> DrivenCalls:
        return DrivenCalls(invocation, self._clock.call_later, self._clock.monotonic_ms)

    def _create_enumerators(self) -> dict[int, SplitEnumerator]:
        kept = {e.operator: e.data for e in self._restored.enumerators} if self._restored else {}
        return {
            v.index: v.operators[0].function.create_enumerator(v.parallelism, kept.get(v.operators[0].uid))
            for v in self.graph.vertices
            if v.is_source
        }

    # ---- messages -----------------------------------------------------------------------------------------------

    def _deliver(self, frame: Frame) -> None:
        edge, channel = self.graph.edges[frame.channel.edge], frame.channel
        goes_up = isinstance(frame, CreditLimit)
        to = SubtaskId(edge.source, channel.producer) if goes_up else SubtaskId(edge.target, channel.consumer)
        self._deployed[to].mailbox.post(frame)

    def _on_message(self, message: Message) -> None:
        match message:
            case SlotAck():
                self._acks.setdefault(message.checkpoint_id, {})[message.slot] = message
            case Decline():
                pass
            case ReachedEndOfData(subtask=subtask):
                self._at_end.add(SubtaskId(*subtask))
            case DrainReport():
                self._reports.append(message)
            case SplitsRequested(subtask=subtask):
                self._waiting.append(SubtaskId(*subtask))

    def _release(self, release: Message) -> None:
        assert isinstance(release, ReleaseVertices)
        for subtask in self.subtasks.values():
            if release.is_last or subtask.id.vertex in release.vertices:
                subtask.mailbox.post(release)

    def _hand_out_splits(self) -> bool:
        while self._waiting:
            subtask = self._waiting.popleft()
            found = self._enumerators[subtask.vertex].next_splits(subtask.subtask)
            answer = SplitsAssigned(self.generation, subtask, found or [], found is None)
            self.subtasks[subtask].mailbox.post(answer)
            if found != []:
                return True
        return False

    def _hear_reports(self) -> bool:
        if not self._reports or self._drain is None:
            return False
        self._drain.on_report(self._reports.popleft())
        return True

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def checkpoint(self, checkpoint_id: int, alignment_timeout_ms: int | None, may_wait: bool = False) -> Metadata:
        """Take a checkpoint, and run until it is complete. `alignment_timeout_ms`: 0 is unaligned, None aligned.
        `may_wait`: time may pass until barriers have arrived.
        """
        from penstock.jobmaster.checkpoints import assemble
        from penstock.protocol.driver.driver_effects import PublishCheckpoint

        barrier = Barrier(checkpoint_id, alignment_timeout_ms)
        self._barriers[checkpoint_id] = barrier
        self._draining_at[checkpoint_id] = self._drain is not None and not self._drain.is_over
        self._enumerated[checkpoint_id] = [
            EnumeratorState(self.graph.vertices[v].operators[0].uid, e.snapshot()) for v, e in self._enumerators.items()
        ]
        for subtask in self.subtasks.values():
            if subtask.vertex.is_source:
                subtask.mailbox.post(TriggerCheckpoint(self.generation, barrier))
        self.run(until=lambda: self._is_acknowledged(checkpoint_id))
        while may_wait and not self._is_acknowledged(checkpoint_id) and (next_ms := self.next_ms()) is not None:
            self._clock.now_ms = max(self._clock.now_ms, next_ms)
            self.run(until=lambda: self._is_acknowledged(checkpoint_id))
        if not self._is_acknowledged(checkpoint_id):
            raise RuntimeError(
                "an aligned checkpoint waits behind rows that a slow call holds up: advance the clock, or take it with "
                "unaligned=True"
            )
        acks = tuple(ack for _, ack in sorted(self._acks[checkpoint_id].items()))
        publish = PublishCheckpoint(barrier, self.generation, acks, 0.0, False)
        enumerated, draining = self._enumerated[checkpoint_id], self._draining_at[checkpoint_id]
        made = assemble(self.graph, "job", "job", "inc", publish, 0, enumerated, [], draining)
        del self._barriers[checkpoint_id]
        for subtask in self.subtasks.values():
            subtask.mailbox.post(CheckpointEnded(self.generation, checkpoint_id, False))
        return made.metadata

    def _is_acknowledged(self, checkpoint_id: int) -> bool:
        return len(self._acks.get(checkpoint_id, {})) == self.graph.slots

    # ---- turns --------------------------------------------------------------------------------------------------

    def _turns(self) -> list[Callable[[], bool]]:
        """Return the next turns of all parts; each returns whether it did something."""
        steps: list[Callable[[], bool]] = [partial(self._step, subtask) for subtask in self.subtasks.values()]
        writers: list[Callable[[], bool]] = [writer.step for writer in self._writers]
        return [self._clock.run_due, self._hand_out_splits, self._hear_reports, *writers, *steps]

    def _step(self, subtask: Subtask) -> bool:
        mail = bool(subtask.mailbox)
        result = subtask.step(self._clock.now_ms)
        self._has_worked |= result.worked
        return result.worked or mail or result.wait_ms == 0

    def _has_mail(self) -> bool:
        """Return whether anything waits to be handled. A turn that only grants credit does no work, but sends mail."""
        return bool(self._waiting or self._reports) or any(
            owner.mailbox for owners in (self.subtasks.values(), self._writers) for owner in owners
        )

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until nobody has anything to do at this time, or `until` holds."""
        for _ in range(_ROUNDS_MAX):
            if until():
                return
            did = [turn() for turn in self._turns()]
            if not any(did) and not self._has_mail():
                return
        raise RuntimeError("the pipeline never comes to rest: does a timer register itself for now, again and again?")

    def run_to_pause(self) -> bool:
        """Run until a subtask has done one piece of work. Returns False if there is none at this time."""
        self._has_worked = False
        turns, idle = self._turns(), 0
        while idle < len(turns) or self._has_mail():
            idle = 0 if turns[self._turn % len(turns)]() else idle + 1
            self._turn += 1
            if self._has_worked:
                return True
        return False

    def next_ms(self) -> float | None:
        """Return the time of the next timer, call or timeout; None without one."""
        due = [self._clock.next_ms]
        for subtask in self.subtasks.values():
            waits = [subtask.work.next_deadline_in_ms(), subtask.call_due_in_ms()]
            due += [self._clock.now_ms + max(wait_ms, 0.0) for wait_ms in waits if wait_ms is not None]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    @property
    def has_ended(self) -> bool:
        """Return whether all subtasks have reached the end of their data."""
        return len(self._at_end) == len(self.subtasks)

    def close(self) -> None:
        """End the attempt, as a failure does: functions are closed, and nothing is stored."""
        for subtask in self.subtasks.values():
            subtask.close()
        self._clock.forget()
