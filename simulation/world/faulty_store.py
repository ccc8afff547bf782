"""Implements the object store of a world, and each process's view of it: with faults.

`SharedObjects` is what is on disk, and outlives every process. `FaultyStore` is one process's client: calls fail, are
carried out and reported as failed, or answer late. Without faults it passes the conformance suite of stores.
"""

from __future__ import annotations

import builtins
import threading
from dataclasses import dataclass
from typing import Callable, Sequence

from penstock.storage.store import (
    TEMPORARY_GRACE_S,
    CollectingWriter,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    StoreRefused,
    StoreRemoved,
    checked,
    delete_each,
)
from simulation.world.trace import about_object
from simulation.world.world import Process, World


class SharedObjects:
    """Holds every object. `on_created(path, data)` is called for each, `on_deleted(path)` for each deletion. `failures`
    counts calls that were reported as failed. `ignores_conditions`: existing objects are replaced.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.failures = 0
        self.ignores_conditions = False
        self.removed: set[str] = set()
        """Directories that somebody has removed."""
        self.on_created: Callable[[str, bytes], None] = lambda path, data: None
        self.on_deleted: Callable[[str], None] = lambda path: None
        self.on_listed: Callable[[str, str, list[str]], list[str]] = lambda process, prefix, found: found
        """Returns the names that a process sees when it lists a folder, given the names in it."""


@dataclass(frozen=True)
class StoreFaults:
    """Holds the shares of calls that report a failure: `refused` calls are not executed, `reply_lost` ones are. Each
    call takes up to `late_ms` before it answers."""

    refused: float = 0.0
    reply_lost: float = 0.0
    late_ms: float = 0.0


class FaultyStore:
    """Implements `penstock.storage.store.ObjectStore`. `faults()` is asked at each call; `root` is the folder of
    `shared` that this store sees."""

    def __init__(
        self, world: World, process: Process, shared: SharedObjects, root: str, faults: Callable[[], StoreFaults]
    ) -> None:
        self._world = world
        self._process = process
        self._shared = shared
        self._root = f"{root}/"
        self._faults = faults

    def _call(self, what: str, path: str, changes: bool) -> bool:
        """Passes time; raises where the call is refused; returns whether its reply is lost."""
        world = self._world
        if world.observer is not None:
            world.observer(what, self._process, path)
        faults = self._faults()
        if faults.late_ms:
            world.pass_time(world.chance() * faults.late_ms)
        if self._root in self._shared.removed:
            raise StoreRemoved(f"the simulated directory {self._root} has been removed while it is in use")
        drawn = world.chance()
        if world.trace is not None:
            # The probe's name is random, and means nothing.
            told = f"store {what} {'probe' if path.startswith('probe/') else path}"
            world.tell(self._process.name, told, about_object(path))
        if drawn < faults.refused:
            self._shared.failures += 1
            world.tell(self._process.name, "  refused")
            refusal = StoreRefused if what == "create" and drawn < faults.refused / 2 else StoreError
            raise refusal(f"{path}: the simulated store refuses")
        return changes and drawn < faults.refused + faults.reply_lost

    def _lose_reply(self, path: str) -> None:
        self._shared.failures += 1
        self._world.tell(self._process.name, "  carried out, reply lost")
        raise StoreError(f"{path}: the simulated store's reply is lost")

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        self.create(path, b"".join(bytes(memoryview(part).cast("B")) for part in parts))

    def writer(self, path: str) -> ObjectWriter:
        return CollectingWriter(path, self.put)

    def create(self, path: str, data: bytes) -> None:
        name = self._root + checked(path)
        is_lost = self._call("create", path, changes=True)
        with self._shared.lock:
            is_new = name not in self._shared.objects or self._shared.ignores_conditions
            if is_new:
                self._shared.objects[name] = bytes(data)
        if is_new:
            self._shared.on_created(name, data)
        elif not is_lost:
            raise ObjectExists(f"{path} exists already")
        if is_lost:
            self._lose_reply(path)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        self._call("get", path, changes=False)
        data = self._object(path)
        if length_bytes is None:
            length_bytes = max(0, len(data) - offset)
        if offset + length_bytes > len(data):
            raise RangeMissing(f"{path} has {len(data)} bytes, and not those at {offset}..{offset + length_bytes}")
        return data[offset : offset + length_bytes]

    def size(self, path: str) -> int:
        self._call("size", path, changes=False)
        return len(self._object(path))

    def list(self, prefix: str) -> builtins.list[str]:
        self._call("list", prefix, changes=False)
        below = f"{self._root}{prefix}/" if prefix else self._root
        skip = len(self._root)
        with self._shared.lock:
            found = sorted(name[skip:] for name in self._shared.objects if name.startswith(below))
        return self._shared.on_listed(self._process.name, prefix, found)

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        start = f"{prefix}/" if prefix else ""
        below = (path.removeprefix(start).partition("/") for path in self.list(prefix))
        return sorted({name for name, slash, _ in below if slash})

    def delete(self, path: str) -> None:
        is_lost = self._call("delete", path, changes=True)
        with self._shared.lock:
            was_there = self._shared.objects.pop(self._root + path, None) is not None
        if was_there:
            self._shared.on_deleted(self._root + path)
        if is_lost:
            self._lose_reply(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths)

    def remove_if_empty(self) -> None:
        """Do nothing: the simulated store has no directories."""

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Do nothing: an object of the simulated store is there whole or not at all."""

    def _object(self, path: str) -> bytes:
        data = self._shared.objects.get(self._root + path)
        if data is None:
            raise ObjectMissing(f"{path} does not exist")
        return data
