"""Checks that a claimed checkpoint is eventually deleted, but never while it is the only one."""

from __future__ import annotations

from typing import Any

from penstock.common.options import CheckpointingOptions
from penstock.storage.layout import METADATA_NAME
from simulation.jobs.workload import Workload
from simulation.world.faulty_store import SharedObjects
from simulation.world.world import World


class ClaimChecker:
    """Checks that somebody deletes what the job has claimed, and nobody while it is all that there is."""

    def __init__(self, world: World, workload: Workload, shared: SharedObjects) -> None:
        self._world = world
        self._workload = workload
        self._shared = shared
        self._claimed: str | None = None
        """The path of the checkpoint that the newest log entry claims."""

    @property
    def _is_there(self) -> bool:
        return f"{self._claimed}/{METADATA_NAME}" in self._shared.objects

    def on_entry(self, sequence: int, entry: Any) -> None:
        if self._claimed is not None and entry.claimed is None and self._is_there:
            self._world.violate(
                f"log entry {sequence} says nothing of {self._claimed}, which the job owns: nobody deletes it"
            )
        self._claimed = entry.claimed

    def check_at_end(self, retained: int, has_checkpoints: bool) -> None:
        """Check the leftovers after the job's end. `retained`: the number of the job's own checkpoints that it retains
        then. `has_checkpoints`: it has completed some."""
        if self._claimed is None:
            return
        retained_max = self._workload.configuration.get(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS)
        may_stay = not has_checkpoints or 0 < retained < retained_max  # it counts as the oldest of them
        if self._is_there and not may_stay:
            self._world.violate(f"orphan at the end: {self._claimed}, which the job owned")
        if not self._is_there and not has_checkpoints:
            self._world.violate(f"{self._claimed} is deleted, and nothing is left: the job has completed no checkpoint")
