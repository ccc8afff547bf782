"""Orders rescales and savepoints as the user of a running job, checks the answers, and gives checkpoints more time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.common.job_execution import RescaleFailed, SavepointFailed
from penstock.graph.rescaled_graph import RescaleRefused, rescaled
from penstock.jobmaster.ports import RescaleOrder, RescaleRequested, SavepointOrder
from penstock.protocol.driver.savepoint import Alignment
from penstock.protocol.values.reasons import FailureReason
from simulation.jobs.workload import Workload
from simulation.processes.driver_process import Driver, Statistics
from simulation.processes.present_job import PresentJob
from simulation.world.pace import SAVEPOINT_ROOT
from simulation.world.world import World


class RescaledCluster(Protocol):
    """Declares the interface of the `Cluster` to rescales."""

    workload: Workload
    statistics: Statistics
    job: PresentJob


class RescaleOrders:
    """Follows each order to its one answer."""

    def __init__(self, world: World, cluster: RescaledCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._number = 0
        self._unanswered: dict[int, Driver] = {}

    def order(self, driver: Driver) -> None:
        """Draw other parallelisms for the operators, and order them from the driver."""
        workload, master, log = self._cluster.workload, driver.host.master, self._cluster.job.log
        # An order that reaches a driver late may find that a new job has started from the savepoint of its own.
        candidates = None if log is None else log.candidates.get(driver.host.incarnation)
        if candidates is None or not workload.redraw(self._world.random):
            return
        levels = workload.parallelisms.levels()
        wanted = {o.uid: v.parallelism for v in workload.graph.vertices for o in v.operators}
        try:
            candidates.append(rescaled(master.job.graph, master.job.graph, wanted))
        except RescaleRefused as refused:
            self._world.tell("user", f"cannot rescale the running job: {refused}")
            return
        number = self._number = self._number + 1
        self._unanswered[number] = driver

        def answer(failed: RescaleFailed | None) -> None:
            self._world.tell("user", f"hears of rescale {number}: {failed or 'done'}")
            if self._unanswered.pop(number, None) is None:
                self._world.violate(f"rescale {number} is answered twice")
            if failed is None:
                self._cluster.statistics.rescales += 1
                workload.runs(driver.host.incarnation, levels)
                if any(v.parallelism != wanted[v.uid] for v in master.job.graph.vertices):
                    self._world.violate(f"rescale {number} is done, but the job does not run so")
                life, following = master.lifecycle, master.machine.rescaling.current
                next_seats = 0 if following is None else following.slots + life.settings.spares
                if life.roster.seats > max(life.roster.seats_needed, next_seats):
                    self._world.violate(f"rescale {number} is done, but seats that nobody needs have stayed")

        self._world.tell("user", f"orders rescale {number} to {workload.parallelisms}")
        driver.host.handle(RescaleRequested(RescaleOrder(wanted, answer)))

    def unanswered(self, driver: Driver) -> list[int]:
        """Return the orders that a driver has not answered."""
        return [number for number, asked in self._unanswered.items() if asked is driver]


class SavepointOrders:
    """Follows each order to its one answer. `check` is called with the directory of each savepoint that was taken."""

    def __init__(self, world: World, check: Callable[[str], None]) -> None:
        self._world = world
        self._check = check
        self._number = 0
        self._answered: set[int] = set()
        self.taken: set[str] = set()
        """Directories of the savepoints that a user knows of."""

    def new(self, alignment: Alignment, stops: bool, drains: bool) -> tuple[int, SavepointOrder]:
        """Return an order, and its number."""
        number = self._number = self._number + 1

        def answer(result: str | SavepointFailed) -> None:
            self._world.tell("user", f"hears of savepoint order {number}: {result}")
            if number in self._answered:
                self._world.violate(f"savepoint order {number} is answered twice")
            self._answered.add(number)
            if isinstance(result, str):
                self.taken.add(result)
                self._check(result)

        what = ", and to stop" + (" when all is processed" if drains else "") if stops else ""
        self._world.tell("user", f"orders savepoint {number}, {alignment.value}{what}")
        return number, SavepointOrder(answer, SAVEPOINT_ROOT, alignment, stops, drains)

    def unanswered(self, driver: Driver) -> list[int]:
        """Return the orders that a driver has not answered."""
        return [number for number in driver.orders if number not in self._answered]


EXPIRED_IN_A_ROW = 50
LONGER_TIMEOUT = "59 s"
"""Shorter than what runs without faults draw, whose checkpoints may not fail."""


class Patience:
    """Counts checkpoints that expire one after the other, none next to another one.

    A job that ends, or is rescaled, waits for a checkpoint. With a timeout that is too short for its state it waits for
    ever, and that is no defect. Checkpoints that hold each other up are one, so those are not counted.

    Args:
        resume: Ends the driver, and resumes the job with this timeout.
    """

    def __init__(self, resume: Callable[[str], None]) -> None:
        self._resume = resume
        self._expired = 0
        self._is_spent = False

    def on_published(self) -> None:
        self._expired = 0

    def on_aborted(self, reason: str, is_alone: bool) -> None:
        """Count an expired checkpoint. `is_alone`: no other one is pending."""
        if reason != FailureReason.EXPIRED or not is_alone:
            self._expired = 0
            return
        self._expired += 1
        if self._expired == EXPIRED_IN_A_ROW and not self._is_spent:
            self._is_spent = True
            self._resume(LONGER_TIMEOUT)
