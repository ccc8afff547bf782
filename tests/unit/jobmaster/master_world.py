"""Runs a JobMaster over small worlds: a clock that is set by hand, work that is done when the test says so, stores in
memory by directory, and slots that answer as real ones do, unless the test wants otherwise.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.common.configuration import Configuration
from penstock.datastream.connectors.base import (
    Committer,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
    WriterContext,
)
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind, Partitioner, PartitionerKind
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_master import JobMaster
from penstock.jobmaster.ports import LinkLost, MasterPorts, MessageReceived
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.log_entries import CheckpointEntry
from penstock.protocol.values.messages import (
    Cancel,
    Connected,
    Decline,
    Deploy,
    Leave,
    Left,
    Message,
    ReachedEndOfData,
    Register,
    Restore,
    Restored,
    SlotAck,
    SlotStatus,
    StartRun,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.protocol.values.metadata import (
    Committable,
    InputCut,
    OperatorPart,
    OutputCut,
    Segment,
    StateRange,
    SubtaskSnapshot,
)
from penstock.protocol.values.reasons import FailureReason, SubtaskFailureReason
from penstock.storage.layout import savepoint_segment_path, segment_path
from penstock.storage.log import read_log
from penstock.storage.memory import MemoryStore
from penstock.storage.store import StoreError
from tests.unit.jobmaster.manual_ports import Directories, ManualClock, QueuedWork, RecordedConsole

JOB_ID = "0" * 31 + "1"
DIRECTORY = f"/checkpoints/{JOB_ID}"
T = TypeVar("T")

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}.0"


REPORTED: list[list[bytes]] = []
"""The positions that the source has reported outside the job."""


class CountedSplits(SplitEnumerator):
    wants_checkpoints = True

    def __init__(self, left: int) -> None:
        self.left = left

    def next_splits(self, subtask: int) -> list[bytes] | None:
        if self.left == 0:
            return None
        self.left -= 1
        return [b"%d" % self.left]

    def return_splits(self, splits: list[bytes]) -> None:
        self.left += len(splits)

    def snapshot(self) -> bytes:
        return b"%d" % self.left

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        REPORTED.append(sorted(splits))


class TwoSplits(Source):
    @property
    def produced_type(self) -> None:
        return None

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return CountedSplits(2 if restored is None else int(restored))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise NotImplementedError("slots are played here")


COMMITTED: list[bytes] = []
FAILING_COMMITS = [0]


class ListCommitter(Committer):
    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        if FAILING_COMMITS[0] > 0:
            FAILING_COMMITS[0] -= 1
            raise OSError("target is full")
        COMMITTED.extend(c for c in committables if c not in COMMITTED)


class CommittedList(Sink):
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        raise NotImplementedError("slots are played here")

    def create_committer(self) -> Committer:
        return ListCommitter()


def two_vertices(parallelism: int = 2, name: str = "job") -> JobGraph:
    source = Operator("a" * 32, "numbers", OperatorKind.SOURCE, TwoSplits(), None, None)
    sink = Operator("b" * 32, "list", OperatorKind.SINK, CommittedList(), None, None)
    vertices = (
        Vertex(0, "numbers", parallelism, 128, (source,)),
        Vertex(1, "list", parallelism, 128, (sink,)),
    )
    partitioner = Partitioner(PartitionerKind.REBALANCE)
    edge = Edge(0, "a-b-0-0", 0, 1, 0, partitioner, None, parallelism, parallelism)
    return JobGraph(name, vertices, (edge,))


@dataclass
class PlayedSlot:
    """A slot's process."""

    index: int
    process: str
    submission: int
    inbox: list[Message] = field(default_factory=list)
    generation: Generation | None = None
    is_alive: bool = True
    is_finished: bool = False


class World:
    """`slots[i]` is the process that was submitted last for slot i."""

    def __init__(
        self,
        options: dict[str, str] | None = None,
        *,
        graph: JobGraph | None = None,
        directories: Directories | None = None,
        resume: bool = False,
        incarnation: str = "one",
        identity: JobIdentity | None = None,
        autostart: bool = True,
        commit_work: QueuedWork | None = None,
    ) -> None:
        settings = {"execution.checkpointing.interval": "100 ms", "execution.checkpointing.num-retained": "2"}
        settings.update(options or {})
        settings = {k: v for k, v in settings.items() if v}
        self.clock = ManualClock()
        self.work = QueuedWork()
        self.console = RecordedConsole()
        self.directories = directories or Directories()
        self.slots: dict[int, PlayedSlot] = {}
        self.submissions: dict[int, int] = {}
        self.cancelled = False
        self.muted: set[type] = set()
        self.layers: dict[int, int] = {}
        self.seen: dict[int, list[Message]] = {}
        self.incarnation = incarnation
        self.graph = graph or two_vertices()
        self.master = JobMaster(
            self.graph,
            Configuration(settings),
            identity or JobIdentity(JOB_ID, DIRECTORY, resume=resume),
            incarnation,
            MasterPorts(
                self.clock,
                self,
                self,
                self.work,
                self.directories.open,
                self.console,
                lambda: 0.5,
                "host",
                7,
                commit_work,
            ),
        )
        self.master.start()
        if autostart:
            self.run_until_idle()

    # ---- ports --------------------------------------------------------------------------------------------------

    def submit(self, slot: int) -> None:
        self.submissions[slot] = self.submissions.get(slot, 0) + 1
        submission = self.submissions[slot]
        played = PlayedSlot(slot, f"{self.incarnation}-{slot}-{submission}", submission)
        self.slots[slot] = played

    def resubmit(self, slot: int) -> None:
        self.slots[slot].is_alive = False
        self.submit(slot)
        self.register(slot)

    capacity: int | None = None

    def release(self, slot: int) -> None:
        self.slots.pop(slot).is_alive = False

    def cancel_all(self) -> None:
        self.cancelled = True

    def send(self, process: str, message: Message) -> None:
        for slot in self.slots.values():
            if slot.process == process and slot.is_alive:
                slot.inbox.append(message)

    def close(self, process: str) -> None:
        for slot in self.slots.values():
            if slot.process == process:
                slot.is_alive = False

    # ---- what slots do ------------------------------------------------------------------------------------------

    def say(self, slot: int, message: Message) -> None:
        self.master.handle(MessageReceived(self.slots[slot].process, message))

    def register(self, slot: int) -> None:
        played = self.slots[slot]
        self.say(slot, Register(slot, played.submission, 0, played.process, 100 + slot, "host", 5000, PYTHON, "0"))

    def register_all(self) -> None:
        for slot in self.slots:
            self.register(slot)

    def kill(self, slot: int) -> None:
        """Kill a slot; its Spark job is submitted again, and its process registers with the next `run_until_idle`."""
        played = self.slots[slot]
        played.is_alive = False
        self.submit(slot)
        self.master.handle(LinkLost(played.process, "connection reset"))

    def run_until_idle(self) -> None:
        """Run until nobody has anything to do at this moment."""
        busy = True
        while busy:
            busy = False
            while not self.work.is_paused and self.work.run_one():
                busy = True
            for slot in list(self.slots.values()):
                if slot.is_alive and slot.process not in self.master.lifecycle.roster.processes and not slot.inbox:
                    if Register not in self.muted and not self.master.lifecycle.is_over:
                        self.register(slot.index)
                        busy = True
                while slot.inbox:
                    busy = True
                    self._answer(slot, slot.inbox.pop(0))

    def _answer(self, slot: PlayedSlot, message: Message) -> None:
        self.seen.setdefault(slot.index, []).append(message)
        if type(message) in self.muted:
            return
        match message:
            case Deploy(generation):
                slot.generation = generation
                slot.is_finished = False
                self.say(slot.index, Connected(generation, slot.index))
            case Restore(generation):
                self.say(slot.index, Restored(generation, slot.index, self.layers.get(slot.index, 0)))
            case TriggerCheckpoint(generation, barrier, directory) if generation == slot.generation:
                if directory is None:
                    self.say(slot.index, self.ack(slot.index, barrier.checkpoint_id))
                else:
                    self.say(slot.index, self.save(slot.index, barrier.checkpoint_id, directory))
            case Cancel(generation):
                slot.generation = None
                self.say(slot.index, Left(generation, slot.index))
            case Leave():
                slot.generation = None
                self.say(slot.index, Left(Generation(0, 0), slot.index))
            case StartRun():
                pass

    def ack(self, slot: int, checkpoint_id: int) -> SlotAck:
        """Acknowledge with an empty channel everywhere, a segment in the store, and one committable of the sink."""
        if not self.master.job.settings.checkpointing:
            return self._acknowledged(slot, checkpoint_id, None)
        generation = self.slots[slot].generation or Generation(0, 1)
        path = segment_path(generation, self.incarnation, slot, checkpoint_id, f"r{slot}")
        store = self.master.job_directory.store
        assert store is not None
        if path not in store.list("shared"):
            store.put(path, [b"segment"])
        return self._acknowledged(slot, checkpoint_id, path)

    def save(self, slot: int, checkpoint_id: int, directory: str) -> SlotAck | Decline:
        """Acknowledge a savepoint with a segment in its directory, or decline it if that cannot be written."""
        path = savepoint_segment_path(slot, checkpoint_id, f"r{slot}")
        try:
            self.directories.open(directory, False).put(path, [b"segment"])
        except StoreError as error:
            generation = self.slots[slot].generation or Generation(0, 1)
            subtask, reason = SubtaskId(1, slot), FailureReason.IO_EXCEPTION
            return Decline(generation, slot, checkpoint_id, subtask, reason, str(error))
        return self._acknowledged(slot, checkpoint_id, path)

    def _acknowledged(self, slot: int, checkpoint_id: int, path: str | None) -> SlotAck:
        played = self.slots[slot]
        generation = played.generation or Generation(0, 1)
        zeros = [0] * self.master.job.graph.slots
        finished = played.is_finished
        stored = [] if path is None else [StateRange("a" * 32, "state", 0, 0, len(b"segment"), 0, 1)]
        parts = [OperatorPart("a" * 32, "splits", [b"%d of checkpoint %d" % (slot, checkpoint_id)])]
        source = SubtaskSnapshot(
            0, slot, [], [OutputCut("a-b-0-0", zeros, [])], [], stored, [], parts, [], finished=finished, state_bytes=3
        )
        committable = Committable("b" * 32, b"%d-%d" % (checkpoint_id, slot), checkpoint_id)
        sink = SubtaskSnapshot(
            1, slot, [InputCut("a-b-0-0", zeros, [])], [], [], [], [], [], [committable], finished=finished
        )
        segment = None if path is None else Segment(path, len(b"segment"))
        return SlotAck(generation, slot, checkpoint_id, segment, [source, sink])

    def reach_end_of_data(self) -> None:
        for slot in self.slots.values():
            slot.is_finished = True
        for slot in list(self.slots.values()):
            for vertex in range(2):
                assert slot.generation is not None
                self.say(slot.index, ReachedEndOfData(slot.generation, slot.index, SubtaskId(vertex, slot.index)))
        self.run_until_idle()

    # ---- time ---------------------------------------------------------------------------------------------------

    def at(self, now_ms: float) -> None:
        """Lets time pass, with everything that is due on the way."""
        while True:
            deadline_ms = self.master.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            self.clock.now_ms = max(deadline_ms, self.clock.now_ms)
            self.master.on_time(self.clock.now_ms)
            self.run_until_idle()
        self.clock.now_ms = now_ms
        self.master.on_time(now_ms)
        self.run_until_idle()

    @property
    def store(self) -> MemoryStore:
        return self.directories.stores[DIRECTORY]

    def reports(self) -> dict[int, str]:
        return {c.checkpoint_id: c.status for c in self.master.report.checkpoints}


def checkpoint_entries(world: World) -> list[int]:
    """Ids of the checkpoints in the log."""
    return [e.checkpoint_id for e in read_log(world.store) if isinstance(e, CheckpointEntry)]


def failed(
    slot: int,
    generation: Generation,
    error: str = "ValueError: 7",
    reason: SubtaskFailureReason = SubtaskFailureReason.FUNCTION,
) -> SubtaskFailed:
    return SubtaskFailed(generation, slot, SubtaskId(1, slot), "list", error, "Traceback: user line\n", reason)


def seen_by(world: World, slot: int, kind: type[T]) -> list[T]:
    """Messages of that kind that the slot's processes have got."""
    return [m for m in world.seen[slot] if isinstance(m, kind)]


def beat(world: World) -> None:
    for slot in world.slots.values():
        assert slot.generation is not None
        world.say(slot.index, SlotStatus(slot.generation, slot.index, [], 1))


def reset_target() -> None:
    REPORTED.clear()
    COMMITTED.clear()
    FAILING_COMMITS[0] = 0
