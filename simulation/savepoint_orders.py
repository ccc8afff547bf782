"""Orders savepoints as a user does, and checks the answers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.common.job_execution import SavepointFailed
from penstock.jobmaster.orders import SavepointOrder
from penstock.protocol.driver.savepoint import Alignment
from simulation.drivers import Driver
from simulation.settings import SAVEPOINT_ROOT
from simulation.world import World


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
