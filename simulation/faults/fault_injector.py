"""Injects faults: those that a plan draws, and those that a scenario asks for. Each kind is a method."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.jobmaster.ports import CancelRequested, CheckpointRequested, SavepointRequested
from penstock.protocol.driver.savepoint import Alignment
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.metadata import Metadata
from simulation.faults.fault_plan import FaultPlan
from simulation.faults.user_orders import RescaleOrders, SavepointOrders
from simulation.jobs.workload import Workload
from simulation.processes.driver_process import Driver, Statistics
from simulation.processes.present_job import PresentJob
from simulation.processes.slot_process import SlotProcess
from simulation.world.faulty_store import StoreFaults
from simulation.world.world import Process, World

SUSPENSIONS_MS = (1_000.0, 10_000.0, 70_000.0)
"""The last two are longer than a heartbeat, and than what slots are waited for and most checkpoints may take."""
AIMED_MAX = 2
AIMED_AT_ANY_AFTER_MS = 300.0
"""The time from which on a kill is aimed at any checkpoint, not only at one that is taken while the job drains."""


class InjectedCluster(Protocol):
    """Declares the interface of the `Cluster` to faults."""

    drivers: list[Driver]
    statistics: Statistics
    is_over: bool
    job: PresentJob
    workload: Workload

    def start_driver_soon(self) -> None: ...

    def start_driver_unless_over(self, directory: str) -> None: ...

    def rescale(self) -> bool: ...


class FaultInjector:
    """Injects faults. `store_faults`: the present faults of the store. `failing_*`: the number of calls that are still
    to fail."""

    def __init__(self, cluster: InjectedCluster, world: World, faults: FaultPlan) -> None:
        self._cluster = cluster
        self._world = world
        self._faults = faults
        self._left = faults.count
        self._has_begun = self._waits_for_recovery = self._waits_for_rows = self._waits_for_uneven = False
        self.store_faults: StoreFaults = faults.store
        self.failing_functions = 0
        self.failing_commits = 0
        self._aimed_left = AIMED_MAX
        self._has_restored = False
        self.orders = SavepointOrders(world, cluster.job.check_savepoint)
        self.rescale_orders = RescaleOrders(world, cluster)

    def on_running(self) -> None:
        """Note that a generation runs: the first one, or one after a fault that was to be followed by the next at
        once.
        """
        self._has_restored = self._has_begun
        if not self._has_begun:
            self._has_begun = True
            self._plan()
        elif self._waits_for_recovery:
            self._waits_for_recovery = False
            self._world.after(self._world.chance() * 30, None, self._inject)

    def _plan(self) -> None:
        if self._left:
            self._left -= 1
            if self._left < self._faults.count - 1 and self._world.chance() < self._faults.recovering_share:
                self._waits_for_recovery = True
                return
            self._world.after(self._world.uniform(0.1, 2.0) * self._faults.gap_ms, None, self._inject)

    def _inject(self) -> None:
        if self._cluster.is_over:
            return
        kind = self._world.random.choice(self._faults.kinds)
        self.inject(kind)
        self._plan()

    def inject(self, kind: str) -> None:
        self._world.tell("FAULT", kind)
        self._cluster.statistics.faults.append(kind)
        getattr(self, kind)()

    def inject_now(self, kind: str, duration_ms: float) -> None:
        """Inject a pause of the newest driver that begins during its present step."""
        self._world.tell("FAULT", f"{kind} for {duration_ms:.0f} ms")
        self._cluster.statistics.faults.append(kind)
        self._newest.process.pause_until(self._world.now_ms + duration_ms)

    @property
    def _newest(self) -> Driver:
        return self._cluster.drivers[-1]

    def _some_slot(self) -> SlotProcess | None:
        processes = [p for d in self._cluster.drivers if d.process.is_alive for p in d.keeper.processes]
        return self._world.random.choice(processes) if processes else None

    def kill_slot(self) -> None:
        if slot := self._some_slot():
            slot.kill()

    def kill_two_slots(self) -> None:
        self.kill_slot()
        self._world.after(self._world.chance() * 100, None, self.kill_slot)

    def break_data_link(self) -> None:
        slot = self._some_slot()
        if slot is not None and slot.endpoint.links:
            slot.endpoint.break_link(self._world.random.choice(sorted(slot.endpoint.links)))

    def break_control_link(self) -> None:
        """Break the connection: the driver loses a slot that lives on, and notices later."""
        if slot := self._some_slot():
            slot.link.break_up()
            slot.link.close_down(self._world.chance() * 5000)

    def lose_place(self) -> None:
        """Remove a task place for good, with the task that runs there."""
        self._newest.keeper.places.change(-1)

    def gain_place(self) -> None:
        """Let a task place come, as with another executor."""
        self._newest.keeper.places.change(1)

    def pause_slot(self) -> None:
        if slot := self._some_slot():
            slot.process.pause_until(self._world.now_ms + self._world.random.choice((10.0, 300.0, 8000.0)))

    def request_checkpoint(self) -> None:
        """Request a checkpoint now, as a user."""
        self._tell_driver(CheckpointRequested(lambda failed: None))

    def savepoint(self) -> None:
        """Ask for a savepoint, as a user; the job continues."""
        self._order(stops=False)

    def stop_with_savepoint(self) -> None:
        """Stop the job with a savepoint; a new job starts from it."""
        self._order(stops=True)

    def drain_with_savepoint(self) -> None:
        """End the sources, and stop the job with a savepoint when all is processed; a new job starts from it."""
        self._order(stops=True, drains=True)

    def _order(self, stops: bool, drains: bool = False) -> None:
        driver = self._newest
        number, order = self.orders.new(self._world.random.choice(list(Alignment)), stops, drains)

        def deliver() -> None:
            if not driver.host.has_ended:
                driver.orders.append(number)
                driver.host.handle(SavepointRequested(order))

        if driver.process.is_alive and driver.host.has_begun and not driver.host.has_ended:
            self._world.after(0.0, driver.process, deliver)

    def rescale_live(self) -> None:
        """Ask the running job for other parallelisms, as a user."""
        driver = self._newest

        def deliver() -> None:
            if not driver.host.has_ended:
                self.rescale_orders.order(driver)

        if driver.process.is_alive and driver.host.has_begun and not driver.host.has_ended:
            self._world.after(0.0, driver.process, deliver)

    def on_stopped(self) -> None:
        """Note that a new job starts from the savepoint that the present one was stopped with: it has not run yet."""
        self._waits_for_rows = self._waits_for_uneven = False

    def cancel(self) -> None:
        """Cancel the job, as Ctrl-C does."""
        self._tell_driver(CancelRequested())

    def _tell_driver(self, event: Any) -> None:
        driver = self._newest
        if driver.process.is_alive and driver.host.has_begun and not driver.host.has_ended:
            self._world.after(0.0, driver.process, driver.host.handle, event)

    def expire_checkpoint(self) -> None:
        """Let every pending checkpoint expire while it is still on the wire; the next one follows."""
        driver = self._newest
        if driver.process.is_alive and not driver.host.has_ended and driver.host.has_begun:
            for pending in driver.host.master.coordinator.pending:
                pending.expires_ms = driver.host.clock.monotonic_ms()
            self._world.after(0.0, driver.process, driver.host.look)

    def clock_jump(self) -> None:
        if slot := self._some_slot():
            slot.clock.jump(self._world.uniform(1, 3000))
            slot.process.wall_skew_ms = self._world.random.randint(-(10**9), 10**9)

    def kill_driver(self) -> None:
        driver = self._newest
        if driver.process.is_alive and not driver.host.has_ended:
            self.drop_driver(driver, self._world.random.choice((1.0, 100.0, 5000.0)))
            self._cluster.start_driver_soon()

    def kill_driver_unnoticed(self) -> None:
        """Kill the driver; its slots do not notice for seconds."""
        driver = self._newest
        if driver.process.is_alive and not driver.host.has_ended:
            self.drop_driver(driver, 20_000.0)
            self._cluster.start_driver_soon()

    def kill_slot_with_a_stuck_one(self) -> None:
        """Kill one slot, while in another one a subtask's thread never comes back from user code."""
        processes = [p for d in self._cluster.drivers if d.process.is_alive for p in d.keeper.processes]
        if len(processes) > 1:
            dying, stuck = self._world.random.sample(processes, 2)
            stuck.get_stuck()
            dying.kill()

    def kill_driver_and_slots(self) -> None:
        """Kill the job's newest driver with all its slots."""
        driver = self._newest
        self.drop_driver(driver, 0.0)
        for slot in list(driver.keeper.processes):
            slot.kill()

    def rescale(self) -> None:
        """Kill the job, and resume it at other parallelisms."""
        self.kill_driver_and_slots()
        for _ in range(20):
            if self._cluster.rescale():
                break
        self._cluster.start_driver_soon()

    def rescale_with_rows_in_flight(self) -> None:
        """Rescale once a checkpoint holds rows that were in flight."""
        self._waits_for_rows = True

    def rescale_with_uneven_receivers(self) -> None:
        """Rescale once receivers of a broadcast have read different rows, in a checkpoint."""
        self._waits_for_uneven = True

    def on_acknowledged(self) -> None:
        """Note that a slot has acknowledged a checkpoint, which is not published yet."""
        host = self._newest.host
        if self._faults.aimed == "before_a_publication" and self._aimed_left and host.has_begun:
            is_draining = host.master.running.is_draining
            if is_draining or self._world.now_ms > AIMED_AT_ANY_AFTER_MS:
                self._aim("kill_driver" if self._aimed_left % 2 else "kill_slot")

    def _aim(self, kind: str) -> None:
        self._aimed_left -= 1
        self._world.after(0.0, None, self.inject_unless_over, kind)

    def inject_unless_over(self, kind: str) -> None:
        if not self._cluster.is_over:
            self.inject(kind)

    def on_published(self, metadata: Metadata) -> None:
        is_aimed = self._faults.aimed == "after_a_restore" and self._aimed_left > 0
        if is_aimed and self._has_restored and not metadata.is_final:
            self._has_restored = False
            self._aim("kill_slot")
        waits = self._waits_for_rows and edges_in_flight(metadata)
        waits = waits or (self._waits_for_uneven and uneven_broadcasts(metadata))
        if waits and not metadata.is_final:
            self._waits_for_rows = self._waits_for_uneven = False
            self._world.after(0.0, None, self._rescale_unless_over)

    def _rescale_unless_over(self) -> None:
        if not self._cluster.is_over and self._newest.process.is_alive:
            self.inject("rescale")

    def stop_checkpoints(self) -> None:
        """Stop the newest driver from triggering checkpoints."""
        self._newest.host.master.coordinator.schedule.stop()

    def drop_driver(self, driver: Driver, notice_ms: float) -> None:
        """Drop the driver's process; its slots notice within that time."""
        driver.process.is_alive = False
        driver.keeper.end()
        driver.control.end(notice_ms)

    def pause_driver(self) -> None:
        """Pause the driver: it stops, wakes up, and continues at the same step."""
        driver = self._newest
        driver.process.pause_until(self._world.now_ms + self._world.random.choice((50.0, 2000.0)))

    def suspend_driver(self) -> None:
        """Suspend the driver (SIGSTOP) for longer than some of its limits. It continues at the same step, and what has
        come meanwhile waits for it."""
        self._suspend(self._newest.process)

    def suspend_slot(self) -> None:
        """Suspend a slot's process (SIGSTOP) for longer than some of its limits."""
        if slot := self._some_slot():
            # A job fails for slots that do not register in time, and must.
            self._suspend(slot.process, SUSPENSIONS_MS[-1 if slot.has_been_answered else -2])

    def _suspend(self, process: Process, ms_max: float = SUSPENSIONS_MS[-1]) -> None:
        process.pause_until(self._world.now_ms + min(self._world.random.choice(SUSPENSIONS_MS), ms_max))

    def take_over(self) -> None:
        """Resume the job with another driver while its driver still lives: it is fenced, whether it sleeps or not."""
        driver = self._newest
        if not driver.process.is_alive or driver.host.has_ended:
            return
        if self._world.chance() < 0.7:
            driver.process.pause_until(self._world.now_ms + self._world.uniform(1, 1000))
        self.take_over_awake()

    def take_over_awake(self) -> None:
        """Resume the job with another driver while its driver continues."""
        cluster = self._cluster
        self._world.after(self._world.chance() * 50, None, cluster.start_driver_unless_over, cluster.job.directory)

    def store_outage(self) -> None:
        self.store_faults = self._faults.outage
        self._world.after(self._world.uniform(1, 400), None, self._end_outage)

    def _end_outage(self) -> None:
        self.store_faults = self._faults.store

    def user_failure(self) -> None:
        self.failing_functions = self._world.random.randint(1, 2)

    def commit_failure(self) -> None:
        self.failing_commits = self._world.random.randint(1, 3)
