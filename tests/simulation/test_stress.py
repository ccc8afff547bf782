"""Runs real threads at a switch interval of a microsecond: what one scheduler cannot show, because steps are its atoms.

A JobMaster and two slots in one process, a thread for each subtask, each slot's connections, the JobMaster and its
blocking work. Checkpoints run every 10 ms, user code fails now and then, and the output has to be exact.
"""

from __future__ import annotations

import platform
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_master import JobMaster
from penstock.jobmaster.ports import LinkLost, MasterPorts, MessageReceived
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Leave, Left, Message, Register
from penstock.runtime.process.slot import Slot
from penstock.runtime.process.threads import ThreadScheduler
from simulation.checkers.log_checker import LogChecker
from simulation.checkers.output_checks import AnswerChecker, check_end
from simulation.jobs.output import Output
from simulation.jobs.workload import Workload, WorkloadBuilder
from simulation.processes.data_network import FrameQueue
from simulation.world import world_hooks
from simulation.world.call_log import CallLog, CheckpointName
from simulation.world.faulty_store import FaultyStore, SharedObjects, StoreFaults
from simulation.world.small_limits import SMALL
from simulation.world.transaction_broker import TransactionBroker
from simulation.world.world import Process, World
from simulation.world.world_hooks import Pending

END_S_MAX = 60.0
DIRECTORY = "/checkpoints/" + "5eed" * 8


class RealClock:
    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def undisturbed_ms(self) -> float:
        return self.monotonic_ms()

    def wall_ms(self) -> int:
        return 0


class Worker:
    """A thread that calls what is put, in order."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = failed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, action: Callable[[], None]) -> None:
        self._queue.put(action)

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join(END_S_MAX)

    def _run(self) -> None:
        while (action := self._queue.get()) is not None:
            try:
                action()
            except BaseException as error:
                self._failed(error)


class MasterThread:
    """The JobMaster's loop, its blocking work and its links."""

    def __init__(self, cluster: ThreadedCluster) -> None:
        self._cluster = cluster
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._work = Worker("blocking work", cluster.failed)
        self.thread = threading.Thread(target=self._run, name="JobMaster", daemon=True)
        self.master: JobMaster

    def put(self, action: Callable[[], None]) -> None:
        self._inbox.put(action)

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def execute() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            self.put(lambda: done(result))

        self._work.put(execute)

    def send(self, process: str, message: Message) -> None:
        self._cluster.slots[process].put(message)

    def close(self, process: str) -> None:
        pass

    def _run(self) -> None:
        master = self.master
        try:
            master.start()
            while master.outcome is None:
                deadline_ms = master.next_deadline_ms()
                wait_s = 1.0 if deadline_ms is None else min(max(0.0, deadline_ms / 1000 - time.monotonic()), 1.0)
                try:
                    self._inbox.get(timeout=wait_s)()
                except queue.Empty:
                    pass
                now_ms = time.monotonic() * 1000
                if deadline_ms is not None and deadline_ms <= now_ms:
                    master.on_time(now_ms)
        except BaseException as error:
            self._cluster.failed(error)
        self._work.stop()


class ThreadedSlot:
    """A slot in this process. Its messages and frames come from one thread, as in a real one."""

    def __init__(self, cluster: ThreadedCluster, index: int) -> None:
        self.name = f"slot {index}"
        self.index = index
        self._cluster = cluster
        self._io = Worker(f"connections of {self.name}", cluster.failed)
        self._lock = threading.Lock()
        self._frames: dict[int, FrameQueue] = {i: FrameQueue() for i in range(cluster.slot_count)}
        self._generation: Generation | None = None
        self._numbers = iter(range(1_000_000_000))
        self.runtime = Slot(
            index,
            RealClock(),
            self,
            self,
            ThreadScheduler(),
            open_store=lambda root, configuration: cluster.store(),
            new_random=lambda: f"{next(self._numbers):06}",
            limits=SMALL,
        )

    def register(self) -> None:
        self.send(Register(self.index, 0, 0, self.name, 1, "here", 1, platform.python_version(), "0"))

    def put(self, message: Message) -> None:
        self._io.put(lambda: self._on_message(message))

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Leave):
            self.runtime.close(self._closed)
        else:
            self.runtime.on_message(message)

    def _closed(self) -> None:
        self.send(Left(Generation(0, 0), self.index))
        self._cluster.to_master(lambda master: master.handle(LinkLost(self.name, "it has left")))

    # ---- MasterLink and DataLinks -------------------------------------------------------------------------------

    def send(self, *what: Any) -> None:
        if len(what) == 2:
            self._cluster.slots[f"slot {what[0]}"].receive(self.index, what[1], self._generation)
            return
        message = what[0]
        self._cluster.answers.on_sent(self.name, message)
        self._cluster.to_master(lambda master: master.handle(MessageReceived(self.name, message)))

    def connect(self, peers: list[Any], generation: Generation) -> None:
        with self._lock:
            self._frames = {i: FrameQueue() for i in self._frames}
            self._generation = generation
        self._io.put(lambda: self._when_all_there(generation))

    def _when_all_there(self, generation: Generation) -> None:
        if self._generation != generation:
            return
        if all(s._generation == generation for s in self._cluster.slots.values()):
            self.runtime.on_peers_connected(generation)
        else:
            self._io.put(lambda: self._when_all_there(generation))

    def disconnect(self) -> None:
        with self._lock:
            self._generation = None

    def receive(self, sender: int, frame: Any, generation: Generation | None) -> None:
        """Receive a frame in the sender's thread."""
        with self._lock:
            if generation is None or generation != self._generation:
                return
            self._frames[sender].put(frame)
        self._io.put(lambda: self._deliver(sender, generation))

    def _deliver(self, sender: int, generation: Generation) -> None:
        with self._lock:
            if generation != self._generation or not self._frames[sender]:
                return
            frame = self._frames[sender].take()
        self.runtime.on_frame(sender, frame)

    def stop(self) -> None:
        self._io.stop()


class ThreadedCluster:
    """Implements `simulation.world.world_hooks.WorldHooks`, too."""

    def __init__(self, workload: Workload, identity: JobIdentity, failures: int) -> None:
        self.workload = workload
        self.identity = identity
        self.slot_count = workload.graph.slots
        self.world = World(1)
        self.shared = SharedObjects()
        self.output = Output()
        self.call_log = CallLog()
        self.answers = AnswerChecker(self.world)
        self.log = LogChecker(self.world, workload, self.shared, DIRECTORY)
        self.shared.on_created = self.log.on_created
        self._chance = random.Random(1)
        self._failures_left = failures
        self._calls = 0
        self.slots: dict[str, ThreadedSlot] = {}
        self._master = MasterThread(self)

    def store(self) -> FaultyStore:
        return FaultyStore(self.world, Process("any"), self.shared, DIRECTORY, StoreFaults)

    def failed(self, error: BaseException) -> None:
        self.world.violate(f"{threading.current_thread().name} raised {type(error).__name__}: {error}")

    def to_master(self, action: Callable[[JobMaster], None]) -> None:
        self._master.put(lambda: action(self._master.master))

    # ---- SlotSubmitter and Console ------------------------------------------------------------------------------

    def submit(self, slot: int) -> None:
        self.slots[f"slot {slot}"].register()

    def resubmit(self, slot: int) -> None:
        self.world.violate(f"slot {slot} is given up, though it lives")

    capacity: int | None = None

    def release(self, slot: int) -> None:
        pass

    def cancel_all(self) -> None:
        pass

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        pass

    def warning(self, text: str) -> None:
        if "simulated failure" not in text:
            self.world.violate(text)

    # ---- user code's surroundings -------------------------------------------------------------------------------

    def pass_time(self, elapsed_ms: float) -> None:
        pass

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def on_timer(self, operator: str, timestamp_ms: int) -> None:
        """Do nothing: only scenarios of the simulation ask which timers fire."""

    def violate(self, what: str) -> None:
        self.world.violate(what)

    def fail_now(self) -> bool:
        self._calls += 1
        if self._failures_left and self._calls > 1500:
            self._failures_left -= 1
            self._calls = 0
            return True
        return False

    def keep(self, handle: Any) -> None:
        """Do nothing: only the simulation sees when a process has left its generation."""

    def broker(self) -> TransactionBroker:
        return self.output.broker

    def prepare(self, name: str, pending: Pending) -> None:
        self.output.pending[name] = pending

    def confirm(self, name: str) -> None:
        if name not in self.output.committed:
            self.world.violate(f"{name} is confirmed to its writer, but was never committed")

    def commit(self, name: str) -> None:
        if self.identity.directory is not None and name.encode() not in self.log.committable:
            self.world.violate(f"{name} is committed, but no checkpoint in the log says so")
        self.output.committed.setdefault(name, None)

    def objects(self) -> dict[str, bytes]:
        return {}

    def calls(self) -> CallLog:
        return self.call_log

    def incarnation(self) -> str:
        return "abc"

    def restored_from(self) -> CheckpointName | None:
        return None  # these threads have no names, so nobody knows whose subtask asks

    # ---- running ------------------------------------------------------------------------------------------------

    def run(self) -> JobMaster:
        self.slots = {f"slot {i}": ThreadedSlot(self, i) for i in range(self.slot_count)}
        loop = self._master
        ports = MasterPorts(
            RealClock(), loop, self, loop, lambda directory, create: self.store(), self, random.random, limits=SMALL
        )
        loop.master = JobMaster(self.workload.graph, self.workload.configuration, self.identity, "abc", ports)
        world_hooks.enter(self)
        loop.thread.start()
        loop.thread.join(END_S_MAX)
        assert not loop.thread.is_alive(), f"no end: {loop.master.lifecycle.phase}, {self.world.violations}"
        for slot in self.slots.values():
            slot.stop()
        return loop.master


MODES: dict[str, dict[str, object]] = {
    "aligned": {"execution.checkpointing.unaligned.enabled": False},
    "timeout": {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.aligned-checkpoint-timeout": "3 ms",
    },
    "unaligned": {"execution.checkpointing.unaligned.enabled": True},
}


@pytest.fixture(autouse=True)
def restless_interpreter() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    world_hooks.enter(None)


def counted(job: WorkloadBuilder) -> None:
    source = job.source(kind="sequence", rows=6000, parallelism=2, cost_ms=0.0, keys=20)
    job.sink(job.count(source, 2, cost_ms=0.0), 2)


def timed(job: WorkloadBuilder) -> None:
    source = job.source(kind="owned", rows=3000, parallelism=2, cost_ms=0.0, keys=20, timed="patient")
    job.sink(job.window(job.delay(source, 30, cost_ms=0.0), "rows", 100), 2)


def run(
    mode: str, directory: str | None, declare: Callable[[WorkloadBuilder], None] = counted
) -> tuple[ThreadedCluster, JobMaster]:
    configuration = Configuration(
        {
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.timeout": "60 s",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 100,
            "restart-strategy.fixed-delay.delay": "0 ms",
            "penstock.network.window-bytes": 4_000,
            "penstock.network.output-queue-bytes": 4_000,
            "penstock.network.bound-target": "0 ms",
            "execution.buffer-timeout.interval": "0 ms",
            **MODES[mode],
        }
    )
    job = WorkloadBuilder(random.Random(mode), configuration)
    declare(job)
    cluster = ThreadedCluster(job.build(), JobIdentity("5eed" * 8, directory), failures=3)
    master = cluster.run()
    assert master.outcome is not None and master.outcome.state == "FINISHED", master.outcome
    assert not cluster.world.violations, "\n".join(cluster.world.violations)
    assert master.lifecycle.restarts.count == 3
    assert master.history.completed >= 3, "hardly any checkpoint: nothing is stressed"
    return cluster, master


@pytest.mark.parametrize("mode", sorted(MODES))
def test_source_key_by_sink_on_two_slots(mode: str) -> None:
    cluster, _ = run(mode, DIRECTORY)
    check_end(cluster.world, cluster.output, cluster.workload, cluster.log, is_swept=True)
    assert not cluster.world.violations, "\n".join(cluster.world.violations)
    if mode != "aligned":
        assert cluster.log.unaligned > 0 and cluster.log.inflight_rows > 0


def test_timers_and_windows_on_two_slots() -> None:
    cluster, _ = run("unaligned", DIRECTORY, timed)
    check_end(cluster.world, cluster.output, cluster.workload, cluster.log, is_swept=True)
    assert not cluster.world.violations, "\n".join(cluster.world.violations)


def test_checkpoints_in_the_drivers_memory() -> None:
    cluster, _ = run("unaligned", None)
    check_end(cluster.world, cluster.output, cluster.workload, None, is_swept=False)
    assert not cluster.world.violations, "\n".join(cluster.world.violations)
    assert not cluster.shared.objects
