"""Tracks the changes of a state since each checkpoint: for incremental checkpoints of all backends.

The times between snapshots are numbered. A backend notes what changes with the number of the present time: columnar
state in its slots, all others in a `ChangeLog` of parts. What has changed since a checkpoint are the parts with a
higher number than that of the time that its snapshot has ended.

Per state a checkpoint is a chain of runs, oldest first: those that have everything, and after them what has changed, a
run of deleted keys and one of entries per checkpoint. A later run overrides an earlier one. A checkpoint names the runs
of its predecessor's chain, and stores what has changed since as a new run. When the changes of a chain have become more
than its beginning, the next checkpoint stores everything again, so a restore reads twice a small state at most.

Runs of changed entries are our own format, not RocksDB's files. Files are merged in the background: then entries that
have not changed are in new files, and would be stored again. And a run of entries restores into every backend, at every
parallelism, with nothing else than a look at its key groups. The price is a key in memory per changed entry, or, of
columnar state in memory, four bytes per key. Columnar state on disk keeps the arrays of what it forgets in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.state import state_sizes
from penstock.state.backend import StoredState
from penstock.state.chains import Chain, Chains
from penstock.state.restored import StateName


@dataclass(frozen=True)
class Since:
    """Holds the part of a state that a snapshot may reference. Later changes have higher numbers than `number`."""

    chain: Chain
    number: int


class Changes(Chains):
    """Numbers the times between checkpoints. What was restored has number 0."""

    def __init__(self, consolidated_bytes_min: int | None = None) -> None:
        super().__init__(consolidated_bytes_min)
        self.now = 1
        self._oldest = 0
        self._ended: dict[int, int] = {}
        """By snapshot: the number of the time that it ends."""

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        super().on_restored(checkpoint_id, stored)
        self._ended[checkpoint_id] = 0

    def cut(self, checkpoint_id: int, predecessor_id: int | None) -> dict[StateName, Since]:
        """Begin the next numbered time, and return the chains that a snapshot may name. A state without one is stored
        whole."""
        chains = self.of(predecessor_id, checkpoint_id)
        self._ended[checkpoint_id] = self.now
        self.newest_id, self.now = checkpoint_id, self.now + 1
        self._find_oldest(predecessor_id)
        return {
            name: Since(chain, self._ended[chain.covers])
            for name, chain in chains.items()
            if chain.covers in self._ended and chain.is_worth_naming
        }

    def begin_time(self) -> int:
        """Begin the next numbered time, between two snapshots. Return the number of the time that has ended."""
        self.now += 1
        return self.now - 1

    def _find_oldest(self, predecessor_id: int | None) -> None:
        """Forget the snapshots that no later one can name. Uploads may end in any order: as long as no predecessor has
        a chain, any of the running ones may be the first to be one.
        """
        oldest_id = self.oldest_id if predecessor_id is not None and self.chains_of(predecessor_id) else None
        if oldest_id is None:
            oldest = min(self._ended.values())
        else:
            for number in [n for n in self._ended if n < oldest_id]:
                del self._ended[number]
            oldest = self._ended.get(oldest_id, 0)
        self._oldest = max(self._oldest, oldest)

    @property
    def oldest(self) -> int:
        """Return the newest time whose changes nobody will ask for any more. It is computed when a snapshot is taken,
        and stays until the next one, whatever is stored meanwhile.
        """
        return self._oldest if self._ended else self.now


class NumberedPart(Protocol):
    """Holds changes, none of which is later than the time `number`."""

    @property
    def number(self) -> int: ...


PartT = TypeVar("PartT", bound=NumberedPart)


class ChangeLog(Generic[PartT]):
    """Holds changes in parts, the oldest first."""

    def __init__(self) -> None:
        self.parts: list[PartT] = []
        self.known_after = 0
        """Only the changes of later times are known."""

    def since(self, number: int) -> list[PartT] | None:
        """Return the parts with the changes after a time; None if some were dropped."""
        if number < self.known_after:
            return None
        return [part for part in self.parts if part.number > number]

    def forget(self, number: int) -> None:
        """Forget the changes up to this time: nobody will ask for them, or they are too many."""
        self.known_after = max(self.known_after, number)
        self.parts = [part for part in self.parts if part.number > number]


@dataclass(frozen=True)
class KeysSince:
    """Holds the keys of a state of rows that have changed, in `epochs`, the oldest first."""

    epochs: tuple[Mapping[Any, Any], ...]

    def changed(self) -> Mapping[Any, Any]:
        """Return all keys that have changed, each with its newest note."""
        if len(self.epochs) == 1:
            return self.epochs[0]
        merged: dict[Any, Any] = {}
        for epoch in self.epochs:
            merged.update(epoch)
        return merged


class _Epoch(NamedTuple):
    """Holds the keys that have changed in one time, by state."""

    number: int
    changed: Mapping[StateName, Mapping[Any, Any]]


DictT = TypeVar("DictT", bound=dict[Any, Any])


class KeyChanges(Changes, Generic[DictT]):
    """Collects the keys of states of rows that change between checkpoints. A key is noted with a value that the backend
    chooses, in a dict that `new_dict` returns.
    """

    def __init__(self, new_dict: Callable[[], DictT], consolidated_bytes_min: int | None = None) -> None:
        super().__init__(consolidated_bytes_min)
        self._new_dict = new_dict
        self._keys: dict[StateName, DictT] = {}
        self._is_known = True
        """True if all keys have been noted since the newest snapshot."""
        self._log = ChangeLog[_Epoch]()

    def keys_now(self, name: StateName) -> DictT:
        """Return the dict that collects a state's changed keys until the next `cut`."""
        if name not in self._keys:
            self._keys[name] = self._new_dict()
        return self._keys[name]

    def limit(self) -> None:
        """Give up the keys of the present if they are too many."""
        if sum(map(len, self._keys.values())) > state_sizes.CHANGED_KEYS_MAX:
            self._is_known = False
            for changed in self._keys.values():
                changed.clear()

    def cut(self, checkpoint_id: int, predecessor_id: int | None) -> dict[StateName, Since]:
        since = super().cut(checkpoint_id, predecessor_id)
        ended = self.now - 1
        if self._is_known:
            self._log.parts.append(_Epoch(ended, self._keys))
            self._log.forget(self.oldest)
            self._forget_excess()
        else:
            self._log.forget(ended)
        self._keys, self._is_known = {}, True
        return since

    def keys_since(self, name: StateName, since: Since) -> KeysSince | None:
        """Return the keys that have changed before the newest snapshot; None if they were dropped."""
        epochs = self._log.since(since.number)
        return None if epochs is None else KeysSince(tuple(epoch.changed.get(name, {}) for epoch in epochs))

    def _forget_excess(self) -> None:
        """Forget the oldest epochs if there are too many keys."""
        keys = 0
        for epoch in reversed(self._log.parts):
            keys += sum(map(len, epoch.changed.values()))
            if keys > state_sizes.CHANGED_KEYS_MAX:
                self._log.forget(epoch.number)
                return
