"""Simulates the local disk of the machine that slots run on: with copies that cannot be written, or are damaged later.

The files are real, in a temporary directory, and outlive the simulated processes. Faults have a random source of their
own, so a run means the same with copies as it would mean with another store that answers sooner.
"""

from __future__ import annotations

import errno
import re
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Callable

from penstock.common.options import CheckpointingOptions
from penstock.graph.deployment import DeploymentPlan
from penstock.storage.local_backup import Copy, LocalBackup

_FULL_SHARE = 0.1
_DAMAGED_SHARE = 0.2


class LocalDisk:
    """Holds the directories of all slots. `read_bytes`: what was restored from copies; `damaged`, `refused`: how many
    copies were damaged, and how many could not be written; `found`: how often damage was noticed; `opened_databases`:
    how many were opened as they were.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(f"local disk of {seed}")
        self.copied_from_bytes = self.random.choice((1, 1, 2_000, 16 * 1024 * 1024))
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.read_bytes = self.damaged = self.refused = self.found = self.opened_databases = 0

    def open(self, plan: DeploymentPlan, tell: Callable[[str], None]) -> LocalBackup | None:
        """Return the directory of a slot's copies, if the job has any."""
        if not plan.checkpointing or not plan.configuration.get(CheckpointingOptions.LOCAL_BACKUP_ENABLED):
            return None
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="penstock-simulation-")
        return SimulatedBackup(self, [self._directory.name], plan.job_id, tell)

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()


class SimulatedBackup(LocalBackup):
    """Keeps the copies of one simulated slot."""

    def __init__(self, disk: LocalDisk, parents: list[str], job_id: str, tell: Callable[[str], None]) -> None:
        # Names of temporary directories are random, and a trace is the same each time.
        named = re.compile(f"(?:{'|'.join(map(re.escape, parents))})" + r"[^\s:]*")
        super().__init__(parents, job_id, warn=lambda text: tell(named.sub("the local disk", text)))
        self.database_copied_from_bytes = disk.copied_from_bytes
        self._disk = disk

    def new_copy(self, path: str) -> Copy:
        copy = super().new_copy(path)
        if self._disk.random.random() < _FULL_SHARE:
            self._disk.refused += 1
            copy.give_up(OSError(errno.ENOSPC, "the disk of this machine is full"))
        return copy

    def on_written(self, path: Path) -> None:
        super().on_written(path)
        if self._disk.random.random() < _DAMAGED_SHARE and (size := path.stat().st_size):
            self._disk.damaged += 1
            at = self._disk.random.randrange(size)
            with open(path, "r+b") as file:
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0xFF]))

    def read(self, path: str, offset: int, length_bytes: int, crc: int) -> bytes | None:
        data = super().read(path, offset, length_bytes, crc)
        self._disk.read_bytes += 0 if data is None else length_bytes
        return data

    def on_damaged(self, copy: Path, *about: Any) -> None:
        self._disk.found += 1
        super().on_damaged(copy, *about)

    def on_database_opened(self) -> None:
        self._disk.opened_databases += 1
        super().on_database_opened()
