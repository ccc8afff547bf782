"""Runs a whole job's subtasks in one thread: real subtasks, gates, partitions, chains and snapshot writers, over a
store in memory, wires that hold frames back, and a clock that only moves when it is told to. No JobMaster: the test
triggers.
"""

from __future__ import annotations

import heapq
import pickle
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Callable, Iterable

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import Sink, SinkWriter, SplitEnumerator, WriterContext
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import OperatorKind
from penstock.graph.pickling import dumps
from penstock.jobmaster.checkpoints import assemble
from penstock.jobmaster.generations import JobDrain
from penstock.operators.batches import row_type
from penstock.operators.calls.call_runner import CallRunner, Invocation
from penstock.operators.calls.driven_calls import DrivenCalls
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.values.elements import Barrier, Generation, SnapshotKind, SubtaskId
from penstock.protocol.values.frames import CreditLimit, Data, Frame
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
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads
from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.subtask_factory import SubtaskFactory
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.store import ObjectStore
from tests.unit.protocol.channel.wire import Wire

_CHECKPOINT = SnapshotKind.CHECKPOINT


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def undisturbed_ms(self) -> float:
        return self.monotonic_ms()

    def wall_ms(self) -> int:
        return int(self.now_ms)


class CallEvents:
    """Runs the calls of slow services by the job's clock: the events of their event loops, in the order of time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.blocking_ms = 5.0

    def runner(self, invocation: Invocation) -> CallRunner:
        return DrivenCalls(invocation, self._later, lambda: self._clock.now_ms, lambda: self.blocking_ms)

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self._clock.now_ms + delay_ms, self._order, action))

    def run_due(self) -> bool:
        ran = False
        while self._events and self._events[0][0] <= self._clock.now_ms:
            heapq.heappop(self._events)[2]()
            ran = True
        return ran


class CommittedRows(Sink):
    """Rows become visible in `committed` when the checkpoint that holds them is completed by the test."""

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _RowsWriter(row_type(context.input_type))


class _RowsWriter(SinkWriter):
    def __init__(self, type_of_rows: Any) -> None:
        self._type = type_of_rows
        self._rows: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += self._type.decode(batch)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        rows, self._rows = self._rows, []
        return [pickle.dumps(rows)] if rows else []

    def close(self) -> None: ...


@dataclass
class Completed:
    """A checkpoint, and what a restore needs beside the store."""

    metadata: Metadata
    committed: list[Any]


@dataclass
class SmallJob:
    """`order`: None lets everything run in turns; a Random picks who is next."""

    graph: JobGraph
    configuration: Configuration = field(default_factory=Configuration)
    store: ObjectStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=ManualClock)
    restored: Metadata | None = None
    generation: Generation = field(default_factory=lambda: Generation(1, 0))
    order: Random | None = None
    new_uploads: Callable[[], SegmentUploads | None] = lambda: None
    names_predecessors: bool = False
    """Whether a checkpoint may name what the one before it has stored."""

    def __post_init__(self) -> None:
        plan = DeploymentPlan("job", self.graph, self.configuration, "inc", "memory", True)
        self.messages: list[Message] = []
        self.acks: dict[int, dict[int, SlotAck]] = {}
        self.declines: list[Decline] = []
        self.at_end: set[SubtaskId] = set()
        self.wires: dict[tuple[int, int], Wire] = {}
        self.deployed: dict[SubtaskId, DeployedSubtask] = {}
        self.subtasks: dict[SubtaskId, Subtask] = {}
        self.writers: list[SnapshotWriter] = []
        self.barriers: dict[int, Barrier] = {}
        self.newest_id = 0
        self._newest_segments: frozenset[str] = frozenset()
        self.calls = CallEvents(self.clock)
        # Every slot has functions of its own, as where plans travel.
        pickled = dumps(plan)
        self._factories = [self._factory(pickle.loads(pickled), slot) for slot in range(self.graph.slots)]
        self._snapshots: dict[int, list[EnumeratorState]] = {}
        self._enumerators = self._create_enumerators()
        self._waiting: deque[SubtaskId] = deque()
        self._told: set[SubtaskId] = set()
        self._pending: set[int] = set()
        self._draining_at: dict[int, bool] = {}
        self._reports: deque[DrainReport] = deque()
        self.drain = JobDrain(self.graph, self.restored, self.generation, lambda: list(self._pending), self._release)
        for id, deployed in self.deployed.items():
            self.subtasks[id] = self._factories[id.subtask].open(deployed, self.restored, self.store)
        for subtask in self.subtasks.values():
            subtask.mailbox.post(StartRun(self.generation))
        self.drain.begin()

    def _factory(self, plan: DeploymentPlan, slot: int) -> SubtaskFactory:
        vertices = [v for v in plan.graph.vertices if slot < v.parallelism]
        count = iter(range(1_000_000))
        writer = SnapshotWriter(
            self.generation,
            slot,
            len(vertices),
            self.store,
            lambda checkpoint_id: f"shared/{self.generation.counter}-{slot}-{checkpoint_id}-{next(count)}",
            lambda checkpoint_id, directory: (LocalStore(directory), f"s{slot}_c{checkpoint_id}"),
            self._on_message,
            lambda checkpoint_id: None,
            self.clock,
            self.new_uploads(),
        )
        self.writers.append(writer)
        resources = SlotResources(
            plan,
            self.generation,
            slot,
            self.clock,
            writer,
            lambda to, frame: self._send(slot, to, frame),
            self._on_message,
            lambda subtask, checkpoint_id, reason: self._on_message(
                Decline(self.generation, slot, checkpoint_id, subtask, reason)
            ),
            new_calls=self.calls.runner,
        )
        factory = SubtaskFactory(resources)
        for vertex in vertices:
            self.deployed[SubtaskId(vertex.index, slot)] = factory.build(vertex)
        return factory

    def _create_enumerators(self) -> dict[int, SplitEnumerator]:
        kept = {e.operator: e.data for e in self.restored.enumerators} if self.restored else {}
        return {
            v.index: v.operators[0].function.create_enumerator(v.parallelism, kept.get(v.operators[0].uid))
            for v in self.graph.vertices
            if v.is_source
        }

    # ---- what leaves --------------------------------------------------------------------------------------------

    def _send(self, slot: int, to: int, frame: Frame) -> None:
        if slot == to:
            self._deliver(frame)
        else:
            if isinstance(frame, Data):
                payload = memoryview(frame.payload).tobytes()
                frame = Data(frame.channel, frame.first, frame.rows, frame.size_bytes, payload, frame.wanted_bytes)
            self.wires.setdefault((slot, to), Wire()).put(frame)

    def _deliver(self, frame: Frame) -> None:
        edge = self.graph.edges[frame.channel.edge]
        if isinstance(frame, CreditLimit):
            to = SubtaskId(edge.source, frame.channel.producer)
        else:
            to = SubtaskId(edge.target, frame.channel.consumer)
        self.deployed[to].mailbox.post(frame)

    def _on_message(self, message: Message) -> None:
        self.messages.append(message)
        match message:
            case SlotAck():
                self.acks.setdefault(message.checkpoint_id, {})[message.slot] = message
            case Decline():
                self.declines.append(message)
            case ReachedEndOfData(subtask=subtask):
                self.at_end.add(SubtaskId(*subtask))
            case DrainReport():
                self._reports.append(message)
            case SplitsRequested(subtask=subtask):
                self._waiting.append(SubtaskId(*subtask))

    # ---- what the JobMaster does --------------------------------------------------------------------------------

    def _release(self, release: Message) -> None:
        assert isinstance(release, ReleaseVertices)
        for subtask in self.subtasks.values():
            if release.is_last or subtask.id.vertex in release.vertices:
                subtask.mailbox.post(release)

    def hear_reports(self) -> bool:
        if not self._reports:
            return False
        self.drain.on_report(self._reports.popleft())
        return True

    def hand_out_splits(self) -> bool:
        """Answers one reader; one for which there are no splits is told so once, and asked for again and again."""
        for subtask in list(self._waiting):
            found = self._enumerators[subtask.vertex].next_splits(subtask.subtask)
            if found == [] and subtask in self._told:
                continue
            if found == []:
                self._told.add(subtask)
            else:
                self._waiting.remove(subtask)
                self._told.clear()  # the others may get some now, too
            answer = SplitsAssigned(self.generation, subtask, found or [], found is None)
            self.subtasks[subtask].mailbox.post(answer)
            return True
        return False

    def trigger(self, checkpoint_id: int, alignment_timeout_ms: int | None, kind: SnapshotKind = _CHECKPOINT) -> None:
        """Splits are handed out and on their way before the trigger, as on the real connection."""
        predecessor = self.newest_id or None if self.names_predecessors else None
        barrier = Barrier(checkpoint_id, alignment_timeout_ms, kind=kind, predecessor_id=predecessor)
        self.barriers[checkpoint_id] = barrier
        self._pending.add(checkpoint_id)
        self._draining_at[checkpoint_id] = not self.drain.is_over
        self._snapshots[checkpoint_id] = [
            EnumeratorState(self.graph.vertices[v].operators[0].uid, e.snapshot()) for v, e in self._enumerators.items()
        ]
        for subtask in self.subtasks.values():
            if subtask.vertex.is_source:
                subtask.mailbox.post(TriggerCheckpoint(self.generation, barrier))

    def end(self, checkpoint_id: int, aborted: bool) -> None:
        self._pending.discard(checkpoint_id)
        for subtask in self.subtasks.values():
            subtask.mailbox.post(CheckpointEnded(self.generation, checkpoint_id, aborted))

    def is_acknowledged(self, checkpoint_id: int) -> bool:
        return len(self.acks.get(checkpoint_id, {})) == self.graph.slots

    def complete(self, checkpoint_id: int) -> Completed:
        """Writes the metadata: raises `NotCovered` where something in flight was not stored."""
        acks = tuple(ack for _, ack in sorted(self.acks[checkpoint_id].items()))
        publish = PublishCheckpoint(self.barriers[checkpoint_id], self.generation, acks, 0.0, False)
        made = assemble(
            self.graph,
            "job",
            "job",
            "inc",
            publish,
            0,
            self._snapshots[checkpoint_id],
            [],
            self._draining_at[checkpoint_id],
            self.newest_id,
            self._newest_segments,
        )
        self.newest_id = checkpoint_id
        if self.names_predecessors:
            self._newest_segments = frozenset(segment.path for segment in made.metadata.segments)
        rows = [r for s in made.metadata.subtasks for c in s.committables for r in pickle.loads(c.data)]
        self.end(checkpoint_id, aborted=False)
        return Completed(made.metadata, rows)

    # ---- time and turns -----------------------------------------------------------------------------------------

    def once(self) -> bool:
        """Everybody's turn, in order or as `order` says. False: nobody did anything."""
        turns: list[Callable[[], bool]] = [self.hand_out_splits, self.hear_reports]
        turns += [w.step for w in self.writers]
        turns += [partial(self._carry, w) for w in list(self.wires.values())]
        turns += [partial(self._step, s) for s in self.subtasks.values()]
        if self.order is not None:
            turns = [turn for turn in turns if self.order.random() < 0.6]
        did = [turn() for turn in turns] + [self.calls.run_due()]
        return any(did) or bool(self._reports) or (self.order is not None and self._has_work())

    def _carry(self, wire: Wire) -> bool:
        carried = bool(wire)
        while wire:
            self._deliver(wire.take())
            if self.order is not None and self.order.random() < 0.3:
                break
        return carried

    def _step(self, subtask: Subtask) -> bool:
        mail = bool(subtask.mailbox)
        result = subtask.step(self.clock.now_ms)
        self.clock.now_ms += 0.01
        done = subtask.parts.finished or subtask.work.unfinished
        if result.wait_ms is None and subtask.output.has_room() and not done:
            waits = bool(subtask.gate.layers) or any(c.head() is not None for c in subtask.gate.channels)
            assert not waits or subtask.deployed.draining.held, f"{subtask.id} sleeps although it has input and room"
        return result.worked or mail or result.wait_ms == 0

    def _has_work(self) -> bool:
        return (
            not self._told.issuperset(self._waiting)
            or bool(self._reports)
            or any(self.wires.values())
            or any(w.mailbox for w in self.writers)
            or any(s.mailbox or s.step(self.clock.now_ms).wait_ms == 0 for s in self.subtasks.values())
        )

    def run(self, turns: int = 1_000_000, until: Callable[[], bool] = lambda: False) -> None:
        """Run until nobody has anything to do, or `until` holds. Fails where that takes too long."""
        for _ in range(turns):
            if until() or not self.once():
                return
        if turns == 1_000_000:
            raise AssertionError("the job never comes to rest")

    def rest(self, for_ms: float = 1_000.0) -> None:
        """Runs until nothing happens any more, with timers going off in between."""
        end_ms = self.clock.now_ms + for_ms
        self.run()
        while self.clock.now_ms < end_ms:
            self.clock.now_ms += 25.0
            self.run()

    @property
    def all_at_end(self) -> bool:
        return len(self.at_end) == len(self.subtasks)

    def close(self) -> None:
        for subtask in self.subtasks.values():
            subtask.close()


def already_open(subtask: Subtask) -> Callable[[], Subtask]:
    """Return what a runner opens its subtask with, where the job has opened it."""
    return lambda: subtask


def graph_of(build: Callable[[StreamExecutionEnvironment], Any], parallelism: int = 1, **options: Any) -> JobGraph:
    configuration = Configuration(options)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    build(env)
    return env.get_job_graph("job")


def sinks(job: SmallJob) -> Iterable[Subtask]:
    return (s for s in job.subtasks.values() if s.vertex.operators[-1].kind is OperatorKind.SINK)
