"""Knows what has changed since which checkpoint, and where the rest is stored: for incremental checkpoints.

Per state a checkpoint is a chain of runs, oldest first: one that has everything, and after it what has changed, a run
of deleted keys and one of entries per checkpoint. A later run overrides an earlier one. A checkpoint names the runs of
its predecessor's chain, and stores what has changed since as a new run. When the changes of a chain have become more
than its beginning, the next checkpoint stores everything again, so a restore reads twice the state at most.

Runs of changed entries are our own format, not RocksDB's files. Files are merged in the background: then entries that
have not changed are in new files, and would be stored again. And a run of entries restores into every backend, at every
parallelism, with nothing else than a look at its key groups. The price is a key in memory per changed entry.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Mapping, NamedTuple

from penstock.state.backend import StoredState
from penstock.state.restored import StateName

CHANGED_KEYS_MAX = 1_000_000
"""If more keys have changed since a checkpoint, the next one stores everything."""
_RUNS_MAX = 256
"""So many runs a chain has at most."""


@dataclass(frozen=True)
class Chain:
    """Locates a state as it was at checkpoint `covers`. `base_bytes`: of the run, or runs, that have everything."""

    covers: int
    runs: tuple[StoredState, ...]
    base_bytes: int

    @property
    def is_worth_naming(self) -> bool:
        """Return whether it costs less to add to it than to begin again."""
        changed_bytes = sum(run.length_bytes for run in self.runs) - self.base_bytes
        return len(self.runs) < _RUNS_MAX and changed_bytes <= self.base_bytes


@dataclass(frozen=True)
class StateSince:
    """Says what a snapshot may name of a state, and which keys have changed since: whether they have an entry."""

    chain: Chain
    changed: Mapping[bytes, bool]


class _Epoch(NamedTuple):
    """Holds the keys that have changed between two snapshots; None: too many to know."""

    begins_at: int | None
    changed: dict[bytes, bool] | None


class Changes:
    """Collects the keys that change between checkpoints, and remembers the chains that a later one may name. One thread
    uses it, except for `note_stored`.
    """

    def __init__(self) -> None:
        self.now: dict[bytes, bool] | None = {}
        """Keys that have changed since the newest snapshot, in the database's form; None: too many to know."""
        self._epochs: dict[int, _Epoch] = {}
        """By the snapshot that ends it."""
        self._newest_id: int | None = None
        """The newest snapshot, or the restored one."""
        self._chains: dict[int, dict[StateName, Chain]] = {}
        self._restored_id: int | None = None
        self._restored: dict[StateName, list[StoredState]] = {}
        self._restored_runs = Counter[StateName]()

    def limit(self) -> None:
        """Give up the keys of the present if they are too many."""
        if self.now is not None and len(self.now) > CHANGED_KEYS_MAX:
            self.now = None

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def cut(self, checkpoint_id: int, predecessor_id: int | None) -> dict[StateName, StateSince]:
        """Begin a new epoch, and return what a snapshot may name. States that are not in it are to be stored whole."""
        self._adopt_restored()
        self._epochs[checkpoint_id] = _Epoch(self._newest_id, self.now)
        self._newest_id, self.now = checkpoint_id, {}
        chains = {} if predecessor_id is None else self._chains.get(predecessor_id, {})
        if predecessor_id is not None:
            for older in [number for number in list(self._chains) if number < predecessor_id]:
                del self._chains[older]
        self._forget_epochs()
        since: dict[StateName, StateSince] = {}
        merged: dict[int, Mapping[bytes, bool] | None] = {}
        for name, chain in chains.items():
            if chain.covers not in merged:
                merged[chain.covers] = self._changed_between(chain.covers, checkpoint_id)
            changed = merged[chain.covers]
            if changed is not None and chain.is_worth_naming:
                since[name] = StateSince(chain, changed)
        return since

    def _changed_between(self, first_id: int, last_id: int) -> Mapping[bytes, bool] | None:
        """Return what has changed between two snapshots; None if it is not known any more."""
        epochs: list[dict[bytes, bool]] = []
        at: int | None = last_id
        while at != first_id:
            epoch = None if at is None else self._epochs.get(at)
            if epoch is None or epoch.changed is None:
                return None
            epochs.append(epoch.changed)
            at = epoch.begins_at
        changed: dict[bytes, bool] = {}
        for one in reversed(epochs):
            changed.update(one)
        return changed

    def _forget_epochs(self) -> None:
        """Forget the epochs that no chain needs, and the oldest ones if there are too many keys."""
        needed = [chain.covers for chains in list(self._chains.values()) for chain in chains.values()]
        for number in [n for n in self._epochs if needed and n <= min(needed)]:
            del self._epochs[number]
        keys = 0
        for number in sorted(self._epochs, reverse=True):
            keys += len(self._epochs[number].changed or ())
            if keys > CHANGED_KEYS_MAX:
                del self._epochs[number]

    def note_stored(self, checkpoint_id: int, chains: dict[StateName, Chain]) -> None:
        """Note the chains of a checkpoint that is stored. Called in the writer's thread."""
        self._chains[checkpoint_id] = chains

    # ---- restoring ----------------------------------------------------------------------------------------------

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        """Note where the restored runs lie, as far as they may be named."""
        self._restored_id = self._newest_id = checkpoint_id
        for run in stored:
            self._restored.setdefault((run.operator, run.name), []).append(run)

    def on_run_restored(self, name: StateName) -> None:
        self._restored_runs[name] += 1

    def _adopt_restored(self) -> None:
        """Take the restored runs of a state for its chain, if all of them may be named."""
        if self._restored_id is None:
            return
        self._chains[self._restored_id] = {
            name: Chain(self._restored_id, tuple(runs), sum(run.length_bytes for run in runs))
            for name, runs in self._restored.items()
            if len(runs) == self._restored_runs[name]
        }
        self._restored_id = None
        self._restored.clear()
