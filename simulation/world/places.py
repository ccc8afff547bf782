"""Counts the task places of a simulated Spark: how many tasks run at once, and which wait for a place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from simulation.world.world import World


@dataclass(frozen=True)
class PlacePlan:
    """Plans places. `missing`: how many places fewer than slots there are at the start. `changes`: (after how many ms,
    how many places come or, negative, go).
    """

    missing: int = 0
    changes: tuple[tuple[float, int], ...] = ()


def places_of(seed: int) -> PlacePlan | None:
    """Draw places from a random source of their own. None: there is a place for every task."""
    apart = Random(f"places of {seed}")
    if apart.random() < 0.8:
        return None
    missing = apart.choice((0, 1, 1, 2, 3))
    changes = [(apart.uniform(50.0, 3_000.0), apart.choice((-2, -1, -1, 1))) for _ in range(apart.choice((0, 1, 2)))]
    # All places are there in the end, so that each slot gets one.
    changes.append((apart.choice((100.0, 4_000.0)), 8))
    return PlacePlan(missing, tuple(changes))


class Places:
    """Counts places of one driver's tasks. `on_lost(count)` ends `count` tasks, because their places have gone."""

    def __init__(self, world: World, plan: PlacePlan | None, slots: int) -> None:
        self._is_limited = plan is not None
        self.total = slots - plan.missing if plan is not None else 0
        self.total = max(self.total, 1)
        self.taken = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self.on_lost: Callable[[int], None] = lambda count: None
        at_ms = 0.0
        for after_ms, count in plan.changes if plan is not None else ():
            at_ms += after_ms
            world.after(at_ms, None, self.change, count)
        self._world = world

    @property
    def count(self) -> int | None:
        """Return the number of tasks that run at once; None where nobody knows."""
        return self.total if self._is_limited else None

    def take(self, start: Callable[[], None]) -> None:
        """Call `start` as soon as there is a place, which it has until `give_back`."""
        self._waiting.append(start)
        self._start_waiting()

    def give_back(self) -> None:
        self.taken -= 1
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and (not self._is_limited or self.taken < self.total):
            self.taken += 1
            self._waiting.popleft()()

    def change(self, count: int) -> None:
        """Add `count` places or, if it is negative, remove them."""
        before, self.total = self.total, max(self.total + count, 1)
        self._world.tell("spark", f"has {self.total} places, {before} before")
        if self.taken > self.total:
            self.on_lost(self.taken - self.total)
        self._start_waiting()
