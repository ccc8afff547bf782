"""Orders rescales of the running job as a user does, and checks the answers."""

from __future__ import annotations

from typing import Protocol

from penstock.common.job_execution import RescaleFailed
from penstock.graph.rescaled_graph import RescaleRefused, rescaled
from penstock.jobmaster.events import RescaleRequested
from penstock.jobmaster.orders import RescaleOrder
from simulation.drivers import Driver, Statistics
from simulation.present_job import PresentJob
from simulation.workload import Workload
from simulation.world import World


class RescaledCluster(Protocol):
    """Declares what rescales need of the `Cluster`."""

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
                roster = master.lifecycle.roster
                if roster.seats > roster.seats_needed:
                    self._world.violate(f"rescale {number} is done, but seats that nobody needs have stayed")

        self._world.tell("user", f"orders rescale {number} to {workload.parallelisms}")
        driver.host.handle(RescaleRequested(RescaleOrder(wanted, answer)))

    def unanswered(self, driver: Driver) -> list[int]:
        """Return the orders that a driver has not answered."""
        return [number for number, asked in self._unanswered.items() if asked is driver]
