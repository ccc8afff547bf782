"""Loads a restored state while the job runs: what is asked for first, and the rest in the background.

The unit is a granule: the stretch of the database that belongs to one of the sorted runs that the restored chain begins
with. No key of a granule is read, written or scanned before the granule is in the database, all of it at once. Later
runs of the chain are small, and override its beginning: they are in the database before the job runs, under numbers of
their own, and each granule takes its share of them along.

What a granule has at a barrier before it is loaded is what was restored. So a snapshot of everything loads what is
missing, and reads it from an iterator that is made when the granule comes, before anything in it changes.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.state.backend import StateError, StoredState
from penstock.state.rocksdb.bulk_load import SortedFile, is_sorted
from penstock.state.rocksdb.database import PREFIX_BYTES, Batch, Database, Entry, behind_state

Entries = tuple[list[bytes], list[bytes] | None]
"""Keys as the database has them, and their values; None: they are deleted."""


WAIT_MAX_S = 600.0
"""The longest time for which a thread waits for a granule that another one loads."""
_FILE_ENTRIES_MIN = 4096


@dataclass(eq=False)
class Granule:
    """Holds a stretch of keys [first, end), and where its entries lie."""

    number: int
    first: bytes
    end: bytes
    run: StoredState
    is_loading: bool = False
    is_loaded: bool = False


@dataclass(eq=False)
class _Barrier:
    """Holds the granules that a full snapshot lacks, by number; once they are loaded, their entries."""

    missing: list[Granule]
    came: dict[int, Iterator[Entry]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlay:
    """Holds the later runs of a chain in the database: the prefixes of their entries, and of their deleted keys."""

    present: bytes
    deleted: bytes

    def add(self, database: Database, keys: Sequence[bytes], values: list[bytes] | None) -> None:
        """Add a run, which overrides those before."""
        present = [self.present + key[PREFIX_BYTES:] for key in keys]
        deleted = [self.deleted + key[PREFIX_BYTES:] for key in keys]
        if values is None:
            database.write(Batch(deleted, [b""] * len(deleted), present))
        else:
            database.write(Batch(present, values, deleted))


class LazyState:
    """Loads one state. `runs`: what its chain begins with, sorted, with bounds that do not overlap. `load`: reads and
    decodes one of them, in any thread. `overlay`: None if the chain has no later runs.
    """

    def __init__(
        self,
        database: Database,
        prefix: bytes,
        runs: Sequence[StoredState],
        load: Callable[[StoredState], Entries],
        overlay: Overlay | None,
    ) -> None:
        self.prefix = prefix
        self.database = database
        self._load_run = load
        self._overlay = overlay
        firsts = [prefix + run.bounds.first for run in runs[1:] if run.bounds is not None]
        ends = [*firsts, behind_state(prefix)]
        starts = [prefix, *firsts]
        self._granules = [Granule(i, *of_run) for i, of_run in enumerate(zip(starts, ends, runs, strict=True))]
        self._starts = starts
        self._lock = threading.Lock()
        self._has_changed = threading.Condition(self._lock)
        self._barriers: weakref.WeakSet[_Barrier] = weakref.WeakSet()
        self._missing = len(runs)
        self._is_closed = False
        self.bytes = sum(run.length_bytes for run in runs)
        self.loaded_bytes = 0
        self.on_loaded: Callable[[], None] = lambda: None
        """Called once nothing is missing."""

    @property
    def is_loaded(self) -> bool:
        return not self._missing

    def close(self) -> None:
        """End all waiting."""
        with self._lock:
            self._is_closed = True
            self._has_changed.notify_all()

    # ---- what is asked for --------------------------------------------------------------------------------------

    def need(self, keys: Iterable[bytes]) -> None:
        """Load the granules of these keys. Raises `StateError`, `StoreError`."""
        wanted = {bisect_right(self._starts, key) - 1 for key in keys}
        for number in sorted(wanted):
            if not self._granules[number].is_loaded:
                self._ensure(self._granules[number])

    def scan(self, within: bytes, behind: bytes) -> Iterator[Entry]:
        """Yield the entries with keys that begin with `within` and are behind `behind`; load granules on the way."""
        first = max(within, behind)
        for granule in self._granules[bisect_right(self._starts, first) - 1 :]:
            if granule.first > first and not granule.first.startswith(within):
                return
            self._ensure(granule)
            begin = max(first, granule.first)
            for entry in self.database.stretch(begin, granule.end):
                if not entry[0].startswith(within):
                    return
                if entry[0] != behind:
                    yield entry

    def load_next(self) -> None:
        """Load the next granule that is missing. If others load all of these, wait for one: they may fail."""
        missing = [granule for granule in self._granules if not granule.is_loaded]
        if missing:
            self._ensure(next((granule for granule in missing if not granule.is_loading), missing[0]))

    def _ensure(self, granule: Granule) -> None:
        with self._lock:
            while granule.is_loading and not granule.is_loaded and not self._is_closed:
                if not self._has_changed.wait(WAIT_MAX_S):
                    raise StateError(
                        f"a part of state '{granule.run.name}' that is being restored has not come within "
                        f"{WAIT_MAX_S:.0f} s (segment {granule.run.segment.path})"
                    )
            if granule.is_loaded:
                return
            self._check_open()
            granule.is_loading = True
        was_last = False
        try:
            was_last = self._load(granule)
        finally:
            with self._lock:
                granule.is_loading = False
                self._has_changed.notify_all()
        if was_last:
            self.on_loaded()

    def _check_open(self) -> None:
        if self._is_closed:
            name = self._granules[0].run.name
            raise StateError(f"state '{name}' is not restored any more: its generation has ended")

    # ---- loading ------------------------------------------------------------------------------------------------

    def _load(self, granule: Granule) -> bool:
        """Load a granule; return whether it was the last one that was missing."""
        keys, values = self._load_run(granule.run)
        assert values is not None  # a chain begins with entries, not with deleted keys
        if self._overlay is not None:
            keys, values = self._overridden(granule, self._overlay, keys, values)
        insert: Callable[[], None]
        if len(keys) >= _FILE_ENTRIES_MIN and is_sorted(keys):
            number = int.from_bytes(self.prefix, "big")
            file = SortedFile(self.database, f"granule-{number}-{granule.number}")
            file.add(keys, values)
            file.finish()
            insert = file.ingest
        else:
            batch = Batch(keys, values, [])

            def insert() -> None:
                self.database.write(batch)

        with self._lock:
            self._check_open()
            insert()
            for barrier in self._barriers:
                barrier.came[granule.number] = self.database.stretch(granule.first, granule.end)
            granule.is_loaded = True
            self._missing -= 1
            self.loaded_bytes += granule.run.length_bytes
            return not self._missing

    def _overridden(
        self, granule: Granule, overlay: Overlay, keys: list[bytes], values: list[bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the entries of a granule with its share of the later runs."""
        present = list(self._share(granule, overlay.present))
        deleted = [key for key, _ in self._share(granule, overlay.deleted)]
        if not present and not deleted:
            return keys, values
        found = dict(zip(keys, values))
        found.update(present)
        for key in deleted:
            found.pop(key, None)
        in_order = sorted(found)
        return in_order, [found[key] for key in in_order]

    def _share(self, granule: Granule, prefix: bytes) -> Iterator[Entry]:
        first, end = (prefix + key[PREFIX_BYTES:] for key in (granule.first, granule.end))
        for key, value in self.database.stretch(first, end):
            yield self.prefix + key[PREFIX_BYTES:], value

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def at_barrier(self) -> Iterator[Entry]:
        """Return all entries as they are now, sorted. What is missing is loaded when it is reached."""
        with self._lock:
            there = self.database.scan(self.prefix)
            # 3.11b: what is not loaded at the barrier is loaded for the snapshot.
            barrier = _Barrier([granule for granule in self._granules if not granule.is_loaded])
            self._barriers.add(barrier)
        return self._all_of(there, barrier)

    def _all_of(self, there: Iterator[Entry], barrier: _Barrier) -> Iterator[Entry]:
        entry: Any = next(there, None)
        for granule in barrier.missing:
            while entry is not None and entry[0] < granule.first:
                yield entry
                entry = next(there, None)
            self._ensure(granule)
            yield from barrier.came.pop(granule.number)
        while entry is not None:
            yield entry
            entry = next(there, None)


class LoadingDatabase:
    """Reads a database as tables do, as long as some of a state is missing."""

    def __init__(self, state: LazyState) -> None:
        self._state = state
        self._failure = state.database.first_failure
        self._database = state.database
        self.failed = state.database.failed
        self.begin = state.database.begin

    def get(self, key: bytes) -> bytes | None:
        with self._failure.noted():
            self._state.need((key,))
        found: bytes | None = self._database.get(key)
        return found

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._failure.noted():
            self._state.need(keys)
        return self._database.read(keys)

    def write(self, batch: Batch) -> None:
        with self._failure.noted():
            self._state.need(batch.keys)
            self._state.need(batch.deleted)
            self._database.write(batch)

    def scan(self, prefix: bytes, behind: bytes = b"") -> Iterator[Entry]:
        with self._failure.noted():
            yield from self._state.scan(prefix, behind)
