"""Simulates slot processes, and the keeper that submits them: one Spark job per slot, submitted again when it fails.

A process does what `slot_main.py` does: connects, registers, passes messages and frames to the real `Slot`,
sends heartbeats, and ends itself when it receives `Leave` or has lost its driver.
"""

from __future__ import annotations

import platform
import zlib
from random import Random
from typing import Any, Callable, Mapping

from penstock.common.configuration import Configuration
from penstock.common.limits import Limits
from penstock.operators.calls.call_runner import Invocation
from penstock.operators.calls.driven_calls import DrivenCalls
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Host, Leave, Left, Message, Register
from penstock.runtime.process.slot import Slot
from penstock.runtime.subtask.slot_resources import RowBackend
from penstock.state.backend import KeyedStateBackend
from penstock.state.choice import row_backend
from penstock.state.ttl import WallClock
from penstock.storage.store import ObjectStore
from simulation.checkers.revocations import RevocationChecker
from simulation.processes.control_network import ControlNetwork
from simulation.processes.data_network import DataNetwork
from simulation.processes.runners import ScheduledRunners
from simulation.world.naming_backend import NamingBackend
from simulation.world.places import Places
from simulation.world.trace import EVERYONE
from simulation.world.world import Process, ProcessClock, World

NO_GENERATION = Generation(0, 0)
HEARTBEAT_MS = 1_000.0


def _backends(world: World) -> RowBackend:
    """Return the factory of a slot's state backends. Their clock is the world's, and not the process's, which is wrong
    by days: entries would expire, or live on, wherever they are restored.
    """

    def world_ms() -> int:
        return int(world.now_ms)

    def backend(
        configuration: Configuration,
        max_parallelism: int,
        operator_names: Mapping[str, str],
        _: WallClock,
        limits: Limits,
    ) -> KeyedStateBackend:
        if world.names_stored_state:
            return NamingBackend(max_parallelism, operator_names, wall_ms=world_ms, limits=limits)
        return row_backend(configuration, max_parallelism, operator_names, world_ms, limits)

    return backend


class SlotProcess:
    """Runs a slot's process. `ended(process)` is called once, when it has ended for any reason. `on_host(process,
    message)`: it is to play another slot, too. `host`: the process in which this one is played, which is killed with it
    and ends it; None for one with a place of its own.
    """

    def __init__(
        self,
        world: World,
        control: ControlNetwork,
        network: DataNetwork,
        open_store: Callable[[Process, str], ObjectStore],
        slot: int,
        submission: int,
        attempt: int,
        name: str,
        pace_ms: float,
        ended: Callable[[SlotProcess], None],
        on_host: Callable[[SlotProcess, Host], None],
        host: SlotProcess | None = None,
        relieves: bool = False,
    ) -> None:
        self.world = world
        self.slot = slot
        self.submission = submission
        self.host = host
        self.hosted: list[SlotProcess] = []
        self.has_been_answered = False
        """Says whether the driver knows of it."""
        self._on_host = on_host
        self.process = Process(name, world.random.randint(-(10**9), 10**9))
        self._ended = ended
        self.link = control.connect(self.process)
        self.endpoint = network.endpoint(self.process, slot)
        self.clock = ProcessClock(world, self.process, world.random.uniform(0, 1e9))
        self.revocations = RevocationChecker(world, name)
        self._driver = ScheduledRunners(
            world, self.process, pace_ms, self._exit_hard, self.revocations, network.measured
        )
        self.endpoint.on_sent = self._driver.on_frame
        self.runtime = self.endpoint.listener = Slot(
            slot,
            self.clock,
            self.link,
            self.endpoint,
            self._driver,
            open_store=lambda root, configuration: open_store(self.process, root),
            new_random=lambda: f"{world.random.getrandbits(48):012x}",
            row_backend=_backends(world),
            open_backup=lambda plan: world.disk.open(plan, lambda text: world.tell(name, text)),
            limits=world.limits,
            new_calls=self._new_calls,
        )
        self._waits = Random(f"calls of {name} {world.seed}")
        self.link.on_message = self._on_message
        self.link.on_master_lost = self._on_master_lost
        self.pid: int = host.pid if host is not None else zlib.crc32(name.encode())
        register = Register(
            slot,
            submission,
            attempt,
            name,
            self.pid,
            "host",
            1,
            platform.python_version(),
            "0",
            relieves=relieves,
            hosted=host is not None,
        )
        world.after(world.chance() * 5, self.process, self.link.send, register)
        world.after(HEARTBEAT_MS, self.process, self._beat)

    def _new_calls(self, invocation: Invocation) -> DrivenCalls:
        """Return a runner of calls whose loop is driven by the world. A blocking call takes some time of its own."""
        world = self.world

        def later(delay_ms: float, action: Callable[[], None]) -> None:
            world.after(delay_ms, self.process, action)

        return DrivenCalls(invocation, later, lambda: world.now_ms, lambda: self._waits.random() * 20)

    def _on_message(self, message: Message) -> None:
        self.has_been_answered = True
        deployment = self.runtime._deployment
        if isinstance(message, Leave):
            self._leave()
        elif isinstance(message, Host):
            self._on_host(self, message)
        else:
            self.runtime.on_message(message)
        self._look_for_revocation(deployment)

    def _look_for_revocation(self, before: Any) -> None:
        if before is not None and before is not self.runtime._deployment:
            self.revocations.on_revoked(before.generation)

    def _leave(self) -> None:
        """Report `Left` once nothing of it runs any more, then wait a moment for the driver to cancel its Spark job."""
        self.runtime.close(self._closed)

    def _closed(self) -> None:
        self.link.send(Left(NO_GENERATION, self.slot))
        self.world.after(self.world.chance() * 100, self.process, self._end)

    def _on_master_lost(self, detail: str) -> None:
        deployment = self.runtime._deployment
        self.runtime.on_master_lost(detail)
        self._look_for_revocation(deployment)
        self.world.after(self.world.chance() * 10, self.process, self._end)

    def _beat(self) -> None:
        self.link.send(self.runtime.status(0))
        self.world.after(HEARTBEAT_MS, self.process, self._beat)

    def _exit_hard(self, why: str) -> None:
        self.world.tell(self.process.name, f"ends itself: {why}", EVERYONE)
        (self.host or self)._end()

    def kill(self) -> None:
        """Kill the process (SIGKILL): everything in it ends at once."""
        if self.host is not None:
            self.host.kill()
        elif self.process.is_alive:
            self.world.tell(self.process.name, "KILLED", EVERYONE)
            self._end()

    def get_stuck(self) -> None:
        """Let the thread of one subtask never return."""
        self._driver.stop_one()

    def _end(self) -> None:
        if self.process.is_alive:
            self.process.is_alive = False
            if self.runtime.backup is not None:
                self.runtime.backup.leave()
            self.endpoint.end()
            self.link.break_up()
            if self.host is not None:
                self.host.hosted.remove(self)
            for hosted in list(self.hosted):
                hosted._end()
            self._ended(self)


class SlotKeeper:
    """Implements `penstock.jobmaster.ports.SlotSubmitter` for one driver.

    `return_ms`: how long a submission takes to start. `speculation`: share of submissions next to which a second
    attempt starts; `retries`: share of lost processes that Spark starts again within the same submission.
    """

    def __init__(
        self,
        world: World,
        control: ControlNetwork,
        network: DataNetwork,
        open_store: Callable[[Process, str], ObjectStore],
        driver: str,
        pace_ms: float,
        return_ms: float,
        speculation: float,
        retries: float,
        places: Places,
    ) -> None:
        self._world = world
        self._control = control
        self._network = network
        self._open_store = open_store
        self._driver = driver
        self._pace_ms = pace_ms
        self._return_ms = return_ms
        self._speculation = speculation
        self._retries = retries
        self.places = places
        places.on_lost = self._lose_places
        self._registered: dict[int, int] = {}
        self._left_for_good: set[int] = set()
        self._submissions: dict[int, int] = {}
        self._attempts: dict[int, int] = {}
        self._is_over = False
        self.processes: list[SlotProcess] = []
        self.pending = 0
        self.hosted = 0
        """The number of times that a process was asked to play another slot, too, and began to."""

    def submit(self, slot: int) -> None:
        self._submissions[slot] = self._submissions.get(slot, -1) + 1
        self._attempts[slot] = 0
        self._start_later(slot)
        if self._world.chance() < self._speculation:
            self._start_later(slot)

    def _start_later(self, slot: int) -> None:
        self.pending += 1
        delay_ms = self._world.uniform(0.2, 2.0) * self._return_ms
        attempt = self._attempts[slot]
        self._attempts[slot] += 1
        submission = self._submissions[slot]
        self._world.after(delay_ms, self._control.driver, self._wait_for_place, slot, submission, attempt)

    def _wait_for_place(self, slot: int, submission: int, attempt: int) -> None:
        self.places.take(lambda: self._start(slot, submission, attempt))

    def _start(self, slot: int, submission: int, attempt: int) -> None:
        self.pending -= 1
        if self._is_over or submission != self._submissions[slot] or slot in self._left_for_good:
            self.places.give_back()
            return
        name = f"{self._driver}s{slot}.{submission}.{attempt}"
        self._world.tell("keeper", f"starts {name}")
        self.processes.append(
            SlotProcess(
                self._world,
                self._control,
                self._network,
                self._open_store,
                slot,
                submission,
                attempt,
                name,
                self._pace_ms,
                self._on_ended,
                self._host,
            )
        )

    def _on_ended(self, process: SlotProcess) -> None:
        self.processes.remove(process)
        slot = process.slot
        if process.host is not None:
            return
        self.places.give_back()
        if self._is_over or slot in self._left_for_good or process.submission != self._submissions[slot]:
            return
        if any(p.slot == slot and p.submission == process.submission for p in self.processes):
            return
        if self._world.chance() < self._retries:
            self._start_later(slot)
        else:
            self.submit(slot)

    def resubmit(self, slot: int) -> None:
        """Cancel the slot's Spark job, which kills its processes; when they have ended it is submitted again."""
        living = [p for p in self.processes if p.slot == slot and p.host is None]
        for process in living:
            self._world.after(self._world.chance() * 50, None, process.kill)
        if not living:
            self.submit(slot)

    capacity: int | None = None

    def release(self, slot: int) -> None:
        """Cancel the slot's Spark job for good, which kills its processes after a moment."""
        self._submissions[slot] = self._submissions.get(slot, -1) + 1
        self._left_for_good.discard(slot)
        for process in [p for p in self.processes if p.slot == slot and p.host is None]:
            self._world.after(self._world.chance() * 50, None, process.kill)

    # ---- slots that share a process ------------------------------------------------------------------------------

    def leave_to_another(self, slot: int, relieved: bool) -> int:
        """Do as `penstock.spark.slots.spark_slots.SparkSlots`."""
        registered = self._registered.get(slot, 0)
        if not relieved:
            self._left_for_good.add(slot)
        elif self._submissions.get(slot, 0) == registered:
            self.resubmit(slot)
        return registered

    def on_registered(self, register: Register) -> None:
        if not register.hosted:
            self._registered[register.slot] = max(self._registered.get(register.slot, 0), register.submission)

    def _host(self, host: SlotProcess, message: Host) -> None:
        """Make the process play another slot, too, after a moment."""
        self._world.after(self._world.chance() * 20, host.process, self._start_hosted, host, message)

    def _start_hosted(self, host: SlotProcess, message: Host) -> None:
        self.hosted += 1
        name = f"{host.process.name}h{message.slot}.{self.hosted}"
        self._world.tell("keeper", f"{host.process.name} plays slot {message.slot}, too: {name}")
        process = SlotProcess(
            self._world,
            self._control,
            self._network,
            self._open_store,
            message.slot,
            message.submission,
            0,
            name,
            self._pace_ms,
            self._on_ended,
            self._host,
            host,
            message.relieves,
        )
        host.hosted.append(process)
        self.processes.append(process)

    def _lose_places(self, count: int) -> None:
        """Remove an executor, with the tasks that it runs."""
        own = [p for p in self.processes if p.host is None]
        for process in self._world.random.sample(own, min(count, len(own))):
            process.kill()

    def cancel_all(self) -> None:
        self._is_over = True
        for process in list(self.processes):
            self._world.after(self._world.chance() * 50, None, process.kill)

    def end(self) -> None:
        """End with the driver: nothing is submitted again."""
        self._is_over = True
