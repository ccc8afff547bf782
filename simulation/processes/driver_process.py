"""Simulates a driver's process: the real JobMaster, its timer, and a thread for what may block."""

from __future__ import annotations

import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import identify
from penstock.jobmaster.job_master import JobMaster
from penstock.jobmaster.ports import Event, JobOutcome, LinkLost, MasterPorts, MessageReceived
from penstock.protocol.driver.slot_packing import Patience, SlotPacking
from penstock.protocol.values.messages import Message, Register
from penstock.protocol.values.reasons import FailureReason
from penstock.storage.store import ObjectStore
from simulation.checkers.restart_checker import RestartChecker
from simulation.jobs.stored_rows import StoredRows
from simulation.processes.control_network import ControlNetwork
from simulation.processes.slot_process import SlotKeeper
from simulation.world.places import Places
from simulation.world.trace import EVERYONE, About
from simulation.world.world import Process, ProcessClock, World

_WAKE_UPS_MAX = 1_000
"""The largest number of times that the JobMaster may be woken at one moment. A few are enough for what is due then."""


class ScheduledWork:
    """Implements `penstock.jobmaster.ports.BlockingWork`: one piece after the other. A piece is carried out at
    one moment and reported at a later one, and the process may be gone in between."""

    def __init__(self, world: World, process: Process, latency_ms: float) -> None:
        self._world = world
        self._process = process
        self._latency_ms = latency_ms
        self._waiting: deque[tuple[str, Callable[[], Any], Callable[[Any], None]]] = deque()
        self._is_busy = False

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._waiting.append((name, work, done))
        if not self._is_busy:
            self._is_busy = True
            self._later(self._execute)

    def _later(self, action: Callable[..., None], *arguments: Any) -> None:
        self._world.after(self._world.chance() * self._latency_ms, self._process, action, *arguments)

    def _execute(self) -> None:
        name, work, done = self._waiting.popleft()
        self._world.tell(self._process.name, f"works on '{name}'")
        try:
            result = work()
        except Exception as error:
            result = error
        self._later(self._report, done, result)

    def _report(self, done: Callable[[Any], None], result: Any) -> None:
        if self._waiting:
            self._later(self._execute)
        else:
            self._is_busy = False
        done(result)


class TracedConsole:
    """Implements `penstock.jobmaster.console.Console`."""

    def __init__(self, world: World, process: Process, restarts: RestartChecker) -> None:
        self._world = world
        self._process = process
        self._restarts = restarts

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        self._world.tell(self._process.name, f"{subtask + 1}> {text}")

    def warning(self, text: str) -> None:
        self._world.tell(self._process.name, f"warns: {text.splitlines()[-1]}")
        if self._world.observer is not None:
            self._world.observer("warn", self._process, text)
        self._restarts.on_warned(text)


@dataclass(frozen=True)
class DriverEnvironment:
    """Gives a driver its environment: where its slots come from and where objects are."""

    control: ControlNetwork
    slots: SlotKeeper
    places: Places
    open_store: Callable[[Process, str], ObjectStore]
    work_latency_ms: float


class DriverProcess:
    """Runs one driver. `ended(driver, outcome)`: the JobMaster has ended. `raised(driver, detail)`: there is a bug in
    it. `aborted(reason, detail)`: a checkpoint was given up.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        graph: JobGraph,
        configuration: Configuration,
        incarnation: str,
        around: DriverEnvironment,
        ended: Callable[[DriverProcess, JobOutcome], None],
        raised: Callable[[DriverProcess, str], None],
        aborted: Callable[[str, str], None],
    ) -> None:
        self.world = world
        self.process = process
        self.incarnation = incarnation
        self.control = around.control
        self._graph = graph
        self._configuration = configuration
        self._around = around
        self._ended = ended
        self._raised = raised
        self._aborted = aborted
        self._timer = 0
        self._timer_ms: float | None = None
        self._woken_ms = -1.0
        self._woken = 0
        self.has_ended = self.has_begun = False
        self.restarts = RestartChecker(world, process.name, configuration)
        self.master: JobMaster
        self.control.on_message = self._on_message
        self.control.on_lost = self._on_lost

    def start(self) -> None:
        world, around = self.world, self._around
        self.clock = ProcessClock(world, self.process, world.random.uniform(0, 1e9))
        ports = MasterPorts(
            clock=self.clock,
            links=self.control,
            slots=around.slots,
            work=ScheduledWork(world, self.process, around.work_latency_ms),
            commit_work=ScheduledWork(world, self.process, around.work_latency_ms),
            savepoint_work=ScheduledWork(world, self.process, around.work_latency_ms),
            source_work=ScheduledWork(world, self.process, around.work_latency_ms),
            open_store=lambda directory, create: around.open_store(self.process, directory),
            console=TracedConsole(world, self.process, self.restarts),
            random=world.chance,
            limits=world.limits,
        )
        try:
            identity = identify(
                self._configuration, self._graph.name, lambda: f"{world.random.getrandbits(128):032x}", ports.open_store
            )
            self._rows = StoredRows(identity, ports.open_store, lambda: f"{world.random.getrandbits(32):08x}")
            graph = self._rows.prepare(self._graph)
            self.master = JobMaster(graph, self._configuration, identity, self.incarnation, ports)
            self._packing = self._pack()
            self.has_begun = True
            self._watch_aborts()
            self.process.after_event = self.look
            self.master.start()
        except Exception:
            self._raised(self, traceback.format_exc())
            return
        self.look()

    def _pack(self) -> SlotPacking | None:
        """Return the packing of slots; None if there is a place for every task."""
        around, world = self._around, self.world
        if around.places.count is None:
            return None
        relieved = self._configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is not None

        def ask_places(answered: Callable[[int | None], None]) -> None:
            world.after(world.chance() * 50, self.process, answered, around.places.count)

        def tell(line: str) -> None:
            world.tell(self.process.name, line)

        patience = Patience(loss_ms=300.0, return_ms=5_000.0, start_ms=1_000.0)
        return SlotPacking(around.slots, self.control.send, ask_places, tell, None, relieved, patience)

    def _watch_aborts(self) -> None:
        history = self.master.history
        aborted = history.aborted

        def watched(checkpoint_id: int, reason: FailureReason, detail: str) -> None:
            told = f"checkpoint {checkpoint_id} aborted: {reason} {detail}"
            self.world.tell(self.process.name, told, About((checkpoint_id,)))
            self._aborted(reason, detail)
            aborted(checkpoint_id, reason, detail)

        history.aborted = watched  # type: ignore[method-assign]

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception:
            self._raised(self, traceback.format_exc())

    def handle(self, event: Event) -> None:
        self._guarded(self.master.handle, event)

    def _on_message(self, process: str, message: Message) -> None:
        if isinstance(message, Register):
            self._around.slots.on_registered(message)
        self.handle(MessageReceived(process, message))

    def _on_lost(self, process: str, detail: str) -> None:
        self.world.tell(self.process.name, f"lost {process}", EVERYONE)
        self.handle(LinkLost(process, detail))

    def look(self) -> None:
        """Check, after each event, whether the JobMaster has ended, and when its next timer is due."""
        if self.has_ended:
            return
        outcome = self.master.outcome
        if outcome is not None:
            self.has_ended = True
            self._rows.end(outcome)
            self._ended(self, outcome)
            return
        deadline_ms = self.master.next_deadline_ms()
        if self._packing is not None:
            self._packing.look(self.master.lifecycle, self.clock.monotonic_ms())
            deadlines_ms = (deadline_ms, self._packing.next_deadline_ms())
            deadline_ms = min((d for d in deadlines_ms if d is not None), default=None)
        if deadline_ms == self._timer_ms:
            return
        self._timer_ms = deadline_ms
        self._timer += 1
        if deadline_ms is not None:
            delay_ms = max(0.0, deadline_ms - self.clock.monotonic_ms())
            self.world.after(delay_ms, self.process, self._on_time, self._timer)

    def _on_time(self, timer: int) -> None:
        if timer == self._timer and not self.has_ended:
            self._timer_ms = None
            now_ms = self.clock.monotonic_ms()
            self._woken, self._woken_ms = self._woken + 1 if now_ms == self._woken_ms else 1, now_ms
            if self._woken > _WAKE_UPS_MAX:
                self.world.violate(f"the JobMaster was woken {self._woken} times at {now_ms} ms, each time too early")
            self._guarded(self.master.on_time, now_ms)


@dataclass
class Driver:
    process: Process
    host: DriverProcess
    control: ControlNetwork
    keeper: SlotKeeper
    orders: list[int] = field(default_factory=list)
    """Numbers of the savepoints that were ordered from it."""


@dataclass
class Statistics:
    """Counts the events of a run: shows whether faults and modes are really tried."""

    drivers: int = 0
    generations: int = 0
    rescales: int = 0
    refused: int = 0
    """Changed graphs that a checkpoint with rows in flight on a vanished edge did not fit."""
    replaced: int = 0
    """Deployments in which a process played another slot than that of its seat."""
    faults: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    """The reasons why checkpoints were given up."""
