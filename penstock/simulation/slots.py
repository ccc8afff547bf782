"""Slot processes, and the keeper that submits them: one Spark job per slot, submitted again when it fails.

A process does what `penstock.spark.slot_main` does: connects, registers, hands messages and frames to the real
`Slot`, beats, and ends itself when it is told to leave or has lost its driver.
"""

from __future__ import annotations

import platform
from typing import Any, Callable

from penstock.protocol.elements import Generation
from penstock.protocol.messages import Leave, Left, Message, Register
from penstock.runtime.slot import Slot
from penstock.simulation.control_network import ControlNetwork
from penstock.simulation.data_network import DataNetwork
from penstock.simulation.revocations import RevocationChecker
from penstock.simulation.runners import ScheduledRunners
from penstock.simulation.world import Process, ProcessClock, World
from penstock.storage.store import ObjectStore

NO_GENERATION = Generation(0, 0)
HEARTBEAT_MS = 1_000.0


class SlotProcess:
    """`ended(process)` is called once, when it is gone, however that came."""

    def __init__(
        self, world: World, control: ControlNetwork, network: DataNetwork,
        open_store: Callable[[Process, str], ObjectStore],
        slot: int, submission: int, attempt: int, name: str, pace_ms: float, ended: Callable[[SlotProcess], None],
    ) -> None:  # fmt: skip
        self.world = world
        self.slot = slot
        self.submission = submission
        self.process = Process(name, world.random.randint(-10**9, 10**9))
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
            slot, self.clock, self.link, self.endpoint, self._driver,
            open_store=lambda root, fsync: open_store(self.process, root),
            new_random=lambda: f"{world.random.getrandbits(48):012x}",
        )  # fmt: skip
        self.link.on_message = self._on_message
        self.link.on_master_lost = self._on_master_lost
        register = Register(slot, submission, attempt, name, 1, "host", 1, platform.python_version(), "0")
        world.after(world.chance() * 5, self.process, self.link.send, register)
        world.after(HEARTBEAT_MS, self.process, self._beat)

    def _on_message(self, message: Message) -> None:
        deployment = self.runtime._deployment
        if isinstance(message, Leave):
            self._leave()
        else:
            self.runtime.on_message(message)
        self._look_for_revocation(deployment)

    def _look_for_revocation(self, before: Any) -> None:
        if before is not None and before is not self.runtime._deployment:
            self.revocations.on_revoked(before.generation)

    def _leave(self) -> None:
        """Says so once nothing of it runs any more, then waits a moment for the driver to cancel its Spark job."""
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
        self.world.tell(self.process.name, f"ends itself: {why}")
        self._end()

    def kill(self) -> None:
        """SIGKILL: everything in the process is gone at once."""
        if self.process.is_alive:
            self.world.tell(self.process.name, "KILLED")
            self._end()

    def get_stuck(self) -> None:
        """The thread of one subtask does not come back."""
        self._driver.stop_one()

    def _end(self) -> None:
        if self.process.is_alive:
            self.process.is_alive = False
            self.endpoint.end()
            self.link.break_up()
            self._ended(self)


class SlotKeeper:
    """Implements `penstock.runtime.ports.SlotSubmitter` for one driver.

    `return_ms`: how long a submission takes to start. `speculation`: share of submissions beside which a second
    attempt starts; `retries`: share of lost processes that Spark starts again within the same submission."""

    def __init__(
        self, world: World, control: ControlNetwork, network: DataNetwork,
        open_store: Callable[[Process, str], ObjectStore],
        driver: str, pace_ms: float, return_ms: float, speculation: float, retries: float,
    ) -> None:  # fmt: skip
        self._world = world
        self._control = control
        self._network = network
        self._open_store = open_store
        self._driver = driver
        self._pace_ms = pace_ms
        self._return_ms = return_ms
        self._speculation = speculation
        self._retries = retries
        self._submissions: dict[int, int] = {}
        self._attempts: dict[int, int] = {}
        self._is_over = False
        self.processes: list[SlotProcess] = []
        self.pending = 0

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
        self._world.after(delay_ms, self._control.driver, self._start, slot, self._submissions[slot], attempt)

    def _start(self, slot: int, submission: int, attempt: int) -> None:
        self.pending -= 1
        if self._is_over or submission != self._submissions[slot]:
            return
        name = f"{self._driver}s{slot}.{submission}.{attempt}"
        self._world.tell("keeper", f"starts {name}")
        self.processes.append(
            SlotProcess(
                self._world, self._control, self._network, self._open_store, slot, submission, attempt, name,
                self._pace_ms, self._on_ended,
            )
        )

    def _on_ended(self, process: SlotProcess) -> None:
        self.processes.remove(process)
        slot = process.slot
        if self._is_over or process.submission != self._submissions[slot]:
            return
        if any(p.slot == slot and p.submission == process.submission for p in self.processes):
            return
        if self._world.chance() < self._retries:
            self._start_later(slot)
        else:
            self.submit(slot)

    def resubmit(self, slot: int) -> None:
        """Cancels the slot's Spark job, which kills its processes; when they are gone it is submitted again."""
        living = [p for p in self.processes if p.slot == slot]
        for process in living:
            self._world.after(self._world.chance() * 50, None, process.kill)
        if not living:
            self.submit(slot)

    def cancel_all(self) -> None:
        self._is_over = True
        for process in list(self.processes):
            self._world.after(self._world.chance() * 50, None, process.kill)

    def end(self) -> None:
        """The driver has gone, and with it whoever would submit anything again."""
        self._is_over = True
