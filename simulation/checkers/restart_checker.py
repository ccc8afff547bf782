"""Checks that the delay of restarts is kept, by what a driver tells its user."""

from __future__ import annotations

import re

from penstock.common.configuration import Configuration
from penstock.common.options import RestartStrategyOptions
from simulation.world.world import World

_TOLD = re.compile(r"Failure (\d+) of this job; it restarts")
_TOLERANCE_MS = 1e-6


class RestartChecker:
    """Checks the failures of one driver's job: after each of them nothing is tried for the fixed delay, so nothing can
    fail. A commit that was under way may fail meanwhile, but only once: the next ones wait for the restart.
    """

    def __init__(self, world: World, driver: str, configuration: Configuration) -> None:
        options = RestartStrategyOptions
        delays = {"fixed-delay": options.FIXED_DELAY_DELAY, "failure-rate": options.FAILURE_RATE_DELAY}
        delay = delays.get(configuration.get(options.RESTART_STRATEGY) or "")
        self._delay_ms = 0.0 if delay is None else configuration.get(delay).ms
        self._world = world
        self._driver = driver
        self._failed_ms: dict[bool, float] = {}
        """When the job failed last: by a commit, and by anything else."""
        self.failures = 0

    def on_warned(self, text: str) -> None:
        """Record a driver's warning to its user."""
        found = _TOLD.search(text)
        if found is None:
            return
        self.failures += 1
        now_ms, by_commit = self._world.now_ms, "commit" in text
        passed_ms = now_ms - self._failed_ms.get(by_commit, float("-inf"))
        self._failed_ms[by_commit] = now_ms
        if passed_ms < self._delay_ms - _TOLERANCE_MS:
            self._world.violate(
                f"{self._driver}: failure {found[1]} comes {passed_ms:.0f} ms after the one before, and a restart "
                f"waits for {self._delay_ms:.0f} ms"
            )
