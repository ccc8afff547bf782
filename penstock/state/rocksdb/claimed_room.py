"""Adds up the room that the subtasks of a process still take on a disk while they restore their state."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from penstock.storage.local_directory import LocalDirectory


@dataclass(frozen=True)
class _Claim:
    device: int
    needed_bytes: int
    used_before_bytes: int


_claims: weakref.WeakKeyDictionary[LocalDirectory, _Claim] = weakref.WeakKeyDictionary()
"""By directory: what is being restored there. Weak, for subtasks that nobody closes."""
_lock = threading.Lock()


def claim(directory: LocalDirectory, needed_bytes: int) -> tuple[int, int]:
    """Claim room for a restore, until `release`. Returns how much is free on the disk, and how much of that the other
    restores of this process will take, at least.
    """
    device = directory.path.stat().st_dev
    with _lock:
        # Measured before the other claims are: what others write in between must not count twice.
        free_bytes = directory.free_bytes
        _claims.pop(directory, None)
        others = [(of.path, other) for of, other in list(_claims.items()) if other.device == device]
        others_bytes = sum(_missing_bytes(path, other) for path, other in others)
        _claims[directory] = _Claim(device, needed_bytes, _used_bytes(directory.path))
    return free_bytes, others_bytes


def release(directory: LocalDirectory) -> None:
    """Give up a claim, if there is one: the state is restored, or will not be."""
    with _lock:
        _claims.pop(directory, None)


def _missing_bytes(path: Path, other: _Claim) -> int:
    return max(0, other.needed_bytes - max(0, _used_bytes(path) - other.used_before_bytes))


def _used_bytes(path: Path) -> int:
    used = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                used += os.stat(os.path.join(folder, name)).st_size
            except OSError:  # RocksDB deletes files meanwhile
                continue
    return used
