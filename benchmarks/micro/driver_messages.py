"""Measures the CPU that a slot's message costs the driver, by the number of slots. Without Spark, threads or sockets.

    micro/driver_messages.py [slots=8,128,512] [rounds=15] [heartbeats=20]

Each figure is microseconds of CPU per message, or per slot, the least over `rounds`:

    registration     `Register` of a slot, with its share of what the last one starts (the deployment)
    heartbeat        `SlotStatus`, with the statuses of two subtasks
    acknowledgement  `SlotAck`, but for the last one of a checkpoint
    checkpoint       a whole checkpoint, from its trigger to its end, per slot: broadcasts, acknowledgements, metadata,
                     the log entry, and what becomes of the one before
    report           `DrainReport` of a subtask while the job drains

A message goes the way that it goes in a driver: `handle`, then the two questions for the next deadline. Messages are
neither encoded nor sent. Prints one line of JSON last: `<figure>_us_<slots>`, and `<figure>_ratio`, the largest number
of slots against the smallest.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.common.configuration import Configuration
from penstock.datastream.connectors.base import (
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
from penstock.protocol.restore.drain_phases import Draining
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import (
    Connected,
    DrainReport,
    Left,
    Message,
    Register,
    Restored,
    SlotAck,
    SlotStatus,
    SubtaskStatus,
)
from penstock.protocol.values.metadata import InputCut, OutputCut, Segment, SubtaskSnapshot
from penstock.storage.memory import MemoryStore

DEFAULTS = {"slots": "8,128,512", "rounds": "15", "heartbeats": "20"}
FIGURES = ("registration", "heartbeat", "acknowledgement", "checkpoint", "report")
INTERVAL_MS = 1_000.0
EDGE = "numbers-list"


class NoSplits(SplitEnumerator):
    def next_splits(self, subtask: int) -> list[bytes] | None:
        return []

    def return_splits(self, splits: list[bytes]) -> None:
        pass

    def snapshot(self) -> bytes:
        return b""


class Numbers(Source):
    @property
    def produced_type(self) -> None:
        return None

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return NoSplits()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise NotImplementedError("no slot runs here")


class Nowhere(Sink):
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        raise NotImplementedError("no slot runs here")


def forward_graph(slots: int) -> JobGraph:
    source = Operator("a" * 32, "numbers", OperatorKind.SOURCE, Numbers(), None, None)
    sink = Operator("b" * 32, "list", OperatorKind.SINK, Nowhere(), None, None)
    vertices = (Vertex(0, "numbers", slots, 1024, (source,)), Vertex(1, "list", slots, 1024, (sink,)))
    edge = Edge(0, EDGE, 0, 1, 0, Partitioner(PartitionerKind.FORWARD), None, slots, slots)
    return JobGraph("messages", vertices, (edge,))


class PlayedSlots:
    """The JobMaster's ports. Time passes and work is done when `driver_messages` says so; messages to slots are
    counted."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.sent = 0
        self.warnings: list[str] = []
        self._work: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._store = MemoryStore()

    def monotonic_ms(self) -> float:
        return self.now_ms

    def undisturbed_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def send(self, process: str, message: Message) -> None:
        self.sent += 1

    def close(self, process: str) -> None:
        pass

    # Not `submit(slot)` and `submit(name, work, done)` of one object: the ports have equal names.

    capacity: int | None = None

    def release(self, slot: int) -> None:
        pass

    def cancel_all(self) -> None:
        pass

    def resubmit(self, slot: int) -> None:
        raise AssertionError(f"slot {slot} was given up")

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        pass

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def open(self, directory: str, create: bool) -> MemoryStore:
        return self._store

    def submit(self, *what: Any) -> None:
        if len(what) == 3:
            self._work.append((what[1], what[2]))

    def do_work(self) -> None:
        while self._work:
            work, done = self._work.popleft()
            done(work())


class Driver:
    """A JobMaster with so many slots, and the messages that these send."""

    python = f"{sys.version_info.major}.{sys.version_info.minor}.0"

    def __init__(self, slots: int, spares: int = 0) -> None:
        self.slots = slots
        self.ports = PlayedSlots()
        options = {
            "execution.checkpointing.interval": f"{INTERVAL_MS:g} ms",
            "execution.checkpointing.num-retained": "1",
            "heartbeat.timeout": "1 h",
            "slotmanager.redundant-taskmanager-num": str(spares),
        }
        ports = self.ports
        self.master = JobMaster(
            forward_graph(slots),
            Configuration(options),
            JobIdentity("0" * 32, "/checkpoints"),
            "micro",
            MasterPorts(ports, ports, ports, ports, ports.open, ports, lambda: 0.5),
        )
        self.master.start()
        ports.do_work()
        self._rows = 0
        self._generation = Generation(0, 0)

    @property
    def generation(self) -> Generation:
        """The newest one that was deployed."""
        self._generation = self.master.lifecycle.generation or self._generation
        return self._generation

    def handle(self, events: Iterable[MessageReceived]) -> None:
        """Handle a message as a driver's loop does."""
        master = self.master
        for event in events:
            master.handle(event)
            master.next_deadline_ms()
            master.next_deadline_ms()

    def say(self, process: str, message: Message) -> None:
        self.handle([MessageReceived(process, message)])

    def _from_each(self, message: Callable[[int], Message]) -> list[MessageReceived]:
        return [MessageReceived(f"p{slot}", message(slot)) for slot in range(self.slots)]

    def registrations(self) -> list[MessageReceived]:
        return self._from_each(
            lambda slot: Register(slot, 1, 0, f"p{slot}", 100 + slot, "host", 5000, self.python, "0")
        )

    def run(self) -> None:
        """All slots have registered: their subtasks connect and restore."""
        generation = self.generation
        self.handle(self._from_each(lambda slot: Connected(generation, slot)))
        self.handle(self._from_each(lambda slot: Restored(generation, slot)))
        assert self.master.report.state == "RUNNING"

    def lose(self, lost: range) -> None:
        """The processes of these slots are gone; those of the others let go of the generation and wait."""
        generation = self.generation
        for slot in lost:
            self.master.handle(LinkLost(f"p{slot}", "gone"))
        self.handle(self._from_each(lambda slot: Left(generation, slot)))
        self.ports.do_work()

    def heartbeats(self) -> list[MessageReceived]:
        self._rows += 1000
        self.ports.now_ms += 1.0
        generation, rows = self.generation, self._rows

        def status(slot: int) -> SlotStatus:
            subtasks = [SubtaskStatus(v, slot, rows + slot, rows, 0, 0, 0.5, 0.25, 0) for v in range(2)]
            return SlotStatus(generation, slot, subtasks, rows * 1000 + slot)

        return self._from_each(status)

    def trigger(self) -> int:
        """Lets the interval pass; returns the checkpoint's id."""
        deadline_ms = self.master.next_deadline_ms()
        assert deadline_ms is not None
        self.ports.now_ms = deadline_ms
        self.master.on_time(deadline_ms)
        (checkpoint_id,) = self.master.coordinator.pending.ids
        return checkpoint_id

    def acks(self, checkpoint_id: int) -> list[MessageReceived]:
        generation = self.generation

        def ack(slot: int) -> SlotAck:
            source = SubtaskSnapshot(0, slot, [], [OutputCut(EDGE, [7], [])], [], [], [], [], [])
            sink = SubtaskSnapshot(1, slot, [InputCut(EDGE, [7], [])], [], [], [], [], [], [])
            segment = Segment(f"shared/{checkpoint_id}-{slot}", 1000)
            return SlotAck(generation, slot, checkpoint_id, segment, [source, sink])

        return self._from_each(ack)


def cpu_us(action: Callable[[], None]) -> float:
    started_ns = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - started_ns) / 1000


def handled(driver: Driver, messages: Sequence[MessageReceived]) -> float:
    return cpu_us(lambda: driver.handle(messages))


def registered(slots: int) -> tuple[Driver, float]:
    driver = Driver(slots)
    return driver, handled(driver, driver.registrations()) / slots


def checkpoint(driver: Driver) -> tuple[float, float]:
    """Take one; return what an acknowledgement and the whole cost, per slot."""
    triggered: list[int] = []
    trigger_us = cpu_us(lambda: triggered.append(driver.trigger()))
    acks = driver.acks(triggered[0])
    acks_us = handled(driver, acks[:-1])

    def complete() -> None:
        driver.handle(acks[-1:])
        driver.ports.do_work()

    completed = driver.master.report.completed
    complete_us = cpu_us(complete)
    assert driver.master.report.completed == completed + 1, "the checkpoint has not completed"
    return acks_us / (driver.slots - 1), (trigger_us + acks_us + complete_us) / driver.slots


def drain_report(slots: int) -> float:
    """Two phases; each subtask reports twice, and its second report says that it is idle."""
    draining = Draining([slots, slots], [(0, 1)])
    draining.start()
    reports = [
        DrainReport(Generation(0, 1), slot, SubtaskId(1, slot), sequence, True, sequence == 2, {0: 0}, {})
        for sequence in (1, 2)
        for slot in range(slots)
    ]

    def report_all() -> None:
        for report in reports:
            draining.on_report(report)

    cost_us = cpu_us(report_all)
    assert draining.is_over
    return cost_us / len(reports)


def measure(slots: int, rounds: int, heartbeats: int) -> dict[str, float]:
    least: dict[str, float] = {}

    def keep(figure: str, cost_us: float) -> None:
        least[figure] = min(cost_us, least.get(figure, cost_us))

    for _ in range(rounds):
        gc.collect()
        driver, registration_us = registered(slots)
        keep("registration", registration_us)
        driver.run()
        for _ in range(heartbeats):
            messages = driver.heartbeats()
            keep("heartbeat", handled(driver, messages) / slots)
        for _ in range(3):
            acknowledgement_us, whole_us = checkpoint(driver)
            keep("acknowledgement", acknowledgement_us)
            keep("checkpoint", whole_us)
        keep("report", drain_report(slots))
    return least


def main() -> int:
    values = dict(DEFAULTS)
    for argument in sys.argv[1:]:
        name, equals, value = argument.partition("=")
        if not equals or name not in values:
            sys.exit(f"cannot read {argument!r}: arguments are {' '.join(f'{k}={v}' for k, v in DEFAULTS.items())}")
        values[name] = value
    slots = [int(number) for number in values["slots"].split(",")]
    if min(slots) < 2:
        sys.exit("slots: two or more")
    gc.disable()  # a collection would charge one message for the garbage of many
    costs = {count: measure(count, int(values["rounds"]), int(values["heartbeats"])) for count in slots}
    result: dict[str, float] = {}
    for figure in FIGURES:
        result.update({f"{figure}_us_{count}": round(costs[count][figure], 2) for count in slots})
        result[f"{figure}_ratio"] = round(costs[max(slots)][figure] / costs[min(slots)][figure], 3)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
