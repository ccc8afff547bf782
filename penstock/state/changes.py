"""Tracks the changes since each checkpoint, and the stored runs of the rest: for incremental checkpoints.

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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.state.backend import EncodedState, StoredState
from penstock.state.chains import Chain, Chains
from penstock.state.restored import StateName, UntouchedState

DictT = TypeVar("DictT", bound=dict[Any, Any])

CHANGED_KEYS_MAX = 1_000_000
"""If more keys have changed since a checkpoint, the next one stores everything."""


@dataclass(frozen=True)
class KeysSince:
    """Holds the part of a state that a snapshot may reference, and the keys that have changed since: in `epochs`, the
    oldest first."""

    chain: Chain
    epochs: tuple[Mapping[Any, Any], ...]

    def changed(self) -> Mapping[Any, Any]:
        """Return all keys that have changed, with what was noted of each last."""
        if len(self.epochs) == 1:
            return self.epochs[0]
        merged: dict[Any, Any] = {}
        for epoch in self.epochs:
            merged.update(epoch)
        return merged


class _Epoch(NamedTuple):
    """Holds the keys that have changed between two snapshots; None: too many to know."""

    begins_at: int | None
    changed: Mapping[StateName, Mapping[Any, Any]] | None


class Changes(Chains[KeysSince], Generic[DictT]):
    """Collects the keys that change between checkpoints. A key is noted with a value that the backend chooses, in a
    dict that `new_dict` returns.
    """

    def __init__(self, new_dict: Callable[[], DictT], consolidated_bytes_min: int | None = None) -> None:
        super().__init__(consolidated_bytes_min)
        self._new_dict = new_dict
        self._now: dict[StateName, DictT] = {}
        self._is_known = True
        """True if all keys have been noted since the newest snapshot."""
        self._epochs: dict[int, _Epoch] = {}
        """The epochs, each by the snapshot that ends it."""

    def now(self, name: StateName) -> DictT:
        """Return the dict that collects a state's changed keys until the next `cut`."""
        if name not in self._now:
            self._now[name] = self._new_dict()
        return self._now[name]

    @property
    def keys_max(self) -> int:
        """Return the maximum number of changed keys."""
        return CHANGED_KEYS_MAX

    def limit(self) -> None:
        """Give up the keys of the present if they are too many."""
        if sum(map(len, self._now.values())) > CHANGED_KEYS_MAX:
            self._is_known = False
            for changed in self._now.values():
                changed.clear()

    def cut(self, checkpoint_id: int, predecessor_id: int | None) -> dict[StateName, KeysSince]:
        """Begin a new epoch, and return what a snapshot may name. States that are not in it are to be stored whole."""
        chains = self.of(predecessor_id, checkpoint_id)
        self._epochs[checkpoint_id] = _Epoch(self.newest_id, self._now if self._is_known else None)
        self.newest_id, self._now, self._is_known = checkpoint_id, {}, True
        self._forget_epochs()
        since: dict[StateName, KeysSince] = {}
        for name, chain in chains.items():
            epochs = self._epochs_between(chain.covers, checkpoint_id)
            if epochs is not None and chain.is_worth_naming:
                since[name] = KeysSince(chain, tuple(epoch.get(name, {}) for epoch in epochs))
        return since

    def _epochs_between(self, first_id: int, last_id: int) -> list[Mapping[StateName, Mapping[Any, Any]]] | None:
        """Return the changes between two snapshots; None if they were dropped."""
        epochs: list[Mapping[StateName, Mapping[Any, Any]]] = []
        at: int | None = last_id
        while at != first_id:
            epoch = None if at is None else self._epochs.get(at)
            if epoch is None or epoch.changed is None:
                return None
            epochs.insert(0, epoch.changed)
            at = epoch.begins_at
        return epochs

    def _forget_epochs(self) -> None:
        """Forget the epochs that no chain needs, and the oldest ones if there are too many keys."""
        oldest = self.oldest_id
        for number in [n for n in self._epochs if oldest is not None and n <= oldest]:
            del self._epochs[number]
        keys = 0
        for number in sorted(self._epochs, reverse=True):
            keys += sum(map(len, (self._epochs[number].changed or {}).values()))
            if keys > CHANGED_KEYS_MAX:
                del self._epochs[number]


@dataclass(frozen=True)
class SlotsSince:
    """Holds the part of a columnar state that a snapshot may reference: what has changed since has a higher number than
    `number`."""

    chain: Chain
    number: int


class NumberedChanges(Chains[SlotsSince]):
    """Numbers the times between checkpoints, so that a table can note in which one a slot has changed. What was
    restored has number 0.
    """

    def __init__(self, consolidated_bytes_min: int | None = None) -> None:
        super().__init__(consolidated_bytes_min)
        self.now = 1
        self._oldest = 0
        self._ended: dict[int, int] = {}
        """By snapshot: the number of the time that it ends."""

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        super().on_restored(checkpoint_id, stored)
        self._ended[checkpoint_id] = 0

    def cut(self, checkpoint_id: int, predecessor_id: int | None) -> dict[StateName, SlotsSince]:
        """Begin a new time, and return what a snapshot may name. States that are not in it are to be stored whole."""
        chains = self.of(predecessor_id, checkpoint_id)
        self._ended[checkpoint_id] = self.now
        self.newest_id, self.now = checkpoint_id, self.now + 1
        self._find_oldest(predecessor_id)
        return {
            name: SlotsSince(chain, self._ended[chain.covers])
            for name, chain in chains.items()
            if chain.covers in self._ended and chain.is_worth_naming
        }

    def begin_time(self) -> int:
        """Begin a new time, between two snapshots; return the number of the one that has ended."""
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
        """Return the number of which, and of those before, nobody will ask what has changed. It is found when a
        snapshot is taken, and does not change until the next one, whatever is stored meanwhile.
        """
        return self._oldest if self._ended else self.now


class ChainedRuns:
    """Yields the runs of a snapshot: for each state those of its chain, if it may be named, and then new ones. `named`:
    the chains by state; `chains` None: checkpoints are not incremental.
    """

    def __init__(self, chains: Chains[Any] | None, named: Mapping[StateName, Chain], checkpoint_id: int) -> None:
        self._chains = chains
        self._named = named
        self._checkpoint_id = checkpoint_id
        self._added: dict[StateName, int] = {}
        """The number of runs that were encoded, by state."""

    def runs(self, name: StateName, new: Iterable[EncodedState]) -> Iterator[EncodedState | StoredState]:
        """Yield the runs of a state. `new`: what was stored after its chain, or all of it."""
        self._added[name] = 0
        if (chain := self._named.get(name)) is not None:
            yield from chain.runs
        for run in new:
            self._added[name] += 1
            yield run

    def untouched(self, untouched: UntouchedState) -> Iterator[EncodedState | StoredState]:
        """Yield the states that were not used since the restore: named where it lies, or as it was."""
        for schema in untouched.schemas:
            name = (schema.operator, schema.name)
            kept = {} if name in self._named else {name: untouched.runs.get(name, [])}
            yield from self.runs(name, UntouchedState([], kept).encode())

    def on_discarded(self) -> None:
        if self._chains is not None:
            self._chains.on_discarded(self._checkpoint_id)

    def on_stored(self, stored: list[StoredState]) -> None:
        """Note the chains of the states of which all runs may be named. Where only the new run may not, the chain is
        as long as before, and what has changed since is stored once more.
        """
        if self._chains is None:
            return
        by_state: dict[StateName, list[StoredState]] = {name: [] for name in self._added}
        for run in stored:
            by_state[run.operator, run.name].append(run)
        chains: dict[StateName, Chain] = {}
        for name, runs in by_state.items():
            named = self._named.get(name)
            before = () if named is None else named.runs
            if tuple(runs[: len(before)]) != before:
                continue
            if len(runs) == len(before) + self._added[name]:
                whole_at = self._checkpoint_id if named is None else named.whole_at
                chains[name] = self._chains.new_chain(self._checkpoint_id, tuple(runs), whole_at)
            elif named is not None:
                chains[name] = named
        self._chains.note_stored(self._checkpoint_id, chains)


def unchained() -> tuple[UntouchedState, ChainedRuns]:
    """Return an empty chain, for a snapshot that stores its states whole."""
    return UntouchedState([], {}), ChainedRuns(None, {}, 0)
