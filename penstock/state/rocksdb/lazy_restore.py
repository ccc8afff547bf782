"""Decides which restored states of a subtask are loaded while it runs, and loads them in the background.

Those are loaded lazily whose chain of runs is the subtask's own, and begins with several sorted runs that do not
overlap. No snapshot completes that releases a run before it is in the database: an incremental one names all runs of
the chain, and one of everything loads what it lacks. So the checkpoints that name the runs keep them, as any others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.state.backend import RestoringSubtask, StoredState
from penstock.state.restored import StateName
from penstock.state.rocksdb.database import Batch, Database
from penstock.state.rocksdb.lazy_state import Entries, LazyState, LoadingDatabase, Overlay
from penstock.state.rocksdb.snapshot import StoredTable

log = logging.getLogger(__name__)

_AT_ONCE = 2
"""The number of granules that are loaded at once in the background: one is fetched while the other is inserted."""
_REPORT_EVERY_S = 10.0
_MB = 1024 * 1024


@dataclass(frozen=True)
class LazyChain:
    """Holds the runs of a state: sorted ones that it begins with, and later ones, which override them."""

    base: tuple[StoredState, ...]
    later: tuple[StoredState, ...]

    @property
    def runs(self) -> tuple[StoredState, ...]:
        return self.base + self.later


def lazy_chains(runs: Iterable[StoredState]) -> dict[StateName, LazyChain]:
    """Return the chains that can be loaded range by range."""
    by_state: dict[StateName, list[StoredState]] = {}
    for run in runs:
        by_state.setdefault((run.operator, run.name), []).append(run)
    found: dict[StateName, LazyChain] = {}
    for name, chain in by_state.items():
        first = chain[0].segment.path
        base = [run for run in chain if run.segment.path == first]
        if len(base) > 1 and chain[: len(base)] == base and _are_in_order(base):
            found[name] = LazyChain(tuple(base), tuple(chain[len(base) :]))
    return found


def _are_in_order(runs: Sequence[StoredState]) -> bool:
    """Return whether all keys of a run are behind those of the run before."""
    bounds = [run.bounds for run in runs]
    return all(
        one is not None and two is not None and one.first <= one.last < two.first <= two.last
        for one, two in zip(bounds, bounds[1:])
    )


class LazyRestore:
    """Restores states of one subtask while it runs. `load_apart`: runs work next to the subtask, once. `described`:
    whose state it is.
    """

    def __init__(self, database: Database, described: str, subtask: RestoringSubtask) -> None:
        assert subtask.load_apart is not None
        self._database = database
        self._described = described
        self._subtask = subtask
        self._load_apart = subtask.load_apart
        self._chains = lazy_chains(subtask.runs)
        self._states: dict[bytes, LazyState] = {}
        """The states of which something is missing, by the prefix of their keys."""
        self._begun: list[LazyState] = []
        self._lock = threading.Lock()
        self._running = 0
        self._is_closed = False
        self._failure = database.first_failure
        self._reported_s = time.monotonic()

    @property
    def runs(self) -> frozenset[StoredState]:
        """Return the runs of the states that nobody has asked for yet."""
        return frozenset(run for chain in self._chains.values() for run in chain.runs)

    @property
    def unclaimed(self) -> frozenset[StateName]:
        """Return the states that nobody has asked for yet."""
        return frozenset(self._chains)

    @property
    def is_loading(self) -> bool:
        """Return whether some of a state that was asked for is missing."""
        return bool(self._states)

    def take(self, name: StateName) -> LazyChain:
        """Return the runs of a state that nobody has asked for yet; from now on the caller restores them."""
        return self._chains.pop(name)

    # ---- loading ------------------------------------------------------------------------------------------------

    def begin(
        self, table: StoredTable, chain: LazyChain, decode: Callable[[bytes], Entries], new_prefix: Callable[[], bytes]
    ) -> None:
        """Begin to load the state of a table. Its later runs, and the first part of it, are loaded at once: then it is
        known that the state fits what the program declares. Raises `StateError`, `StoreError`.
        """

        def load(run: StoredState) -> Entries:
            return decode(self._subtask.read(run))

        overlay: Overlay | None = None
        if chain.later:
            overlay = Overlay(new_prefix(), new_prefix())
            self._database.begin(overlay.present)
            self._database.begin(overlay.deleted)
            for run in chain.later:
                overlay.add(self._database, *load(run))
        state = LazyState(self._database, table.prefix, chain.base, load, overlay)
        state.on_loaded = partial(self._end, table, overlay)
        table.read_from(LoadingDatabase(state))
        self._states[table.prefix] = state
        self._begun.append(state)
        state.load_next()
        with self._lock:
            missing, self._running = _AT_ONCE - self._running, _AT_ONCE
        for _ in range(missing):
            self._load_apart(self._step)

    def _end(self, table: StoredTable, overlay: Overlay | None) -> None:
        table.read_from(self._database)
        del self._states[table.prefix]
        if overlay is not None:
            for of_runs in (overlay.present, overlay.deleted):
                self._database.delete_state(int.from_bytes(of_runs, "big"))

    def _step(self) -> None:
        """Load one granule, and go to the next one. Runs next to the subtask."""
        with self._lock:  # a state that is begun meanwhile sees whether somebody is still at work
            state = next((state for state in list(self._states.values()) if not state.is_loaded), None)
            if state is None or self._is_closed or self._failure.is_there:
                self._running -= 1
                return
        try:
            state.load_next()
        except Exception as error:  # it fails the subtask, in its own thread
            self._failure.note(error)
        self._report()
        self._load_apart(self._step)

    def need(self, batch: Batch) -> None:
        """Load the granules that a batch overwrites."""
        for keys in (batch.keys, batch.deleted):
            for prefix, state in list(self._states.items()):
                state.need(key for key in keys if key.startswith(prefix))

    def state_of(self, prefix: bytes) -> LazyState | None:
        """Return the state whose keys begin with `prefix`, if a part of it is not loaded yet."""
        return self._states.get(prefix)

    # ---- what is shown ------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        return sum(state.bytes for state in self._begun)

    @property
    def loaded_bytes(self) -> int:
        return sum(state.loaded_bytes for state in self._begun)

    def _report(self) -> None:
        now_s = time.monotonic()
        is_done = self.loaded_bytes == self.bytes
        if not is_done and now_s < self._reported_s + _REPORT_EVERY_S:
            return
        self._reported_s = now_s
        log.info(
            "%s: %.1f of %.1f MB of restored state are loaded",
            self._described,
            self.loaded_bytes / _MB,
            self.bytes / _MB,
        )

    def close(self) -> None:
        self._is_closed = True
        for state in list(self._states.values()):
            state.close()
