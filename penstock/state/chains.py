"""Tracks the stored runs of each state, and decides when a state is stored whole again.

A checkpoint that stores gigabytes takes minutes, while one is wanted each second. So a large state does not begin
again within a checkpoint. It is consolidated: kept as it is at one checkpoint's barrier, and written range by range
next to the checkpoints that name its chain meanwhile. Then a later one names that in place of all runs up to the
barrier. The runs that were stored since stay behind it. The first of them may begin before the barrier: of each key
that changed in its time it has the value at its end, so it is right behind the consolidated state, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import Consolidation, EncodedState, StateSnapshot, StoredState
from penstock.state.restored import RestoringBackend, StateName, UntouchedState
from penstock.storage.layout import SegmentName, parse

_CHANGED_RUNS_MAX = 256
"""The most runs that a chain has besides those that it begins with."""
_LONG = 1.5
"""The growth at which a large chain is consolidated, as a multiple of the bytes that it begins with. Half as many runs
as other chains may have are a reason, too."""
_LARGE_TIMES_MAX = 2
_LARGE_RUNS_MAX = 4 * _CHANGED_RUNS_MAX
"""While a large chain is being consolidated, it may grow to this multiple of the bytes of other chains, and to this
number of runs."""
_NEVER = 2**63
_FAILED_FOR = 64
"""The number of checkpoints after which a consolidation that has failed is begun again."""


@dataclass(frozen=True)
class Chain:
    """Locates a state as it was at checkpoint `covers`. `whole_at`: the checkpoint at which its beginning was stored
    whole, or that was restored.
    """

    covers: int
    runs: tuple[StoredState, ...]
    whole_at: int
    consolidated_bytes_min: int | None = None
    """The beginning from which on it is consolidated; None: CONSOLIDATED_BYTES_MIN."""

    @property
    def is_worth_naming(self) -> bool:
        """Return whether a checkpoint that adds a run to this chain costs less than one that stores the state whole.
        The runs that the chain begins with lie in one segment. Nothing is added to a chain without runs, because it
        would begin with deleted keys.
        """
        if not self.runs:
            return False
        changed_runs, growth = self._growth()
        if self._is_large:
            return changed_runs < _LARGE_RUNS_MAX and growth <= 2 * _LARGE_TIMES_MAX
        return changed_runs < _CHANGED_RUNS_MAX and growth <= 2

    @property
    def is_to_be_consolidated(self) -> bool:
        """Return whether the chain is large, and so long that the state should be stored whole next to checkpoints."""
        # 11.22: a long chain is stored whole, next to checkpoints.
        if not self._is_large:
            return False
        changed_runs, growth = self._growth()
        return growth > _LONG or changed_runs >= _CHANGED_RUNS_MAX // 2

    @property
    def _is_large(self) -> bool:
        least = (
            state_sizes.CONSOLIDATED_BYTES_MIN if self.consolidated_bytes_min is None else self.consolidated_bytes_min
        )
        return bool(self.runs) and sum(run.length_bytes for run in self._first) >= least

    @property
    def _first(self) -> list[StoredState]:
        return [run for run in self.runs if run.segment.path == self.runs[0].segment.path]

    def _growth(self) -> tuple[int, float]:
        """Return the number of runs behind its beginning, and its bytes as a multiple of that."""
        first = self._first
        first_bytes = sum(run.length_bytes for run in first)
        return len(self.runs) - len(first), sum(run.length_bytes for run in self.runs) / max(first_bytes, 1)

    def behind(self, consolidated: Chain) -> Chain:
        """Return the consolidated state, followed by the runs of this chain that were stored since."""
        since = tuple(run for run in self.runs if _stored_by(run) > consolidated.covers)
        return replace(consolidated, covers=max(self.covers, consolidated.covers), runs=consolidated.runs + since)


def _stored_by(run: StoredState) -> int:
    """Return the checkpoint that has stored a run; -1 if it was restored from elsewhere."""
    name = parse(run.segment.path)
    return name.checkpoint_id if isinstance(name, SegmentName) else -1


@dataclass
class _Consolidated:
    """Holds a consolidated state until a checkpoint is stored that names it. `taken_by`: the one that tries."""

    chain: Chain
    taken_by: int | None = None


class Chains:
    """Remembers the chains that a later checkpoint may name. One thread uses it, except for `note_stored`,
    `on_discarded` and `on_consolidated`.
    """

    def __init__(self, consolidated_bytes_min: int | None = None) -> None:
        self._consolidated_bytes_min = consolidated_bytes_min
        self.newest_id: int | None = None
        """The newest snapshot, or the restored one."""
        self._chains: dict[int, dict[StateName, Chain]] = {}
        self._restored_id: int | None = None
        self._restored: dict[StateName, list[StoredState]] = {}
        self._restored_runs = Counter[StateName]()
        self._begun_again: dict[StateName, int] = {}
        """By state: the newest checkpoint whose chain may not be named any more."""
        self._consolidating: dict[StateName, int] = {}
        """By state: the checkpoint at whose barrier it is kept, or behind which none is begun."""
        self._consolidated: dict[StateName, _Consolidated] = {}

    def new_chain(self, covers: int, runs: tuple[StoredState, ...], whole_at: int) -> Chain:
        return Chain(covers, runs, whole_at, self._consolidated_bytes_min)

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def of(self, predecessor_id: int | None, checkpoint_id: int) -> Mapping[StateName, Chain]:
        """Return the chains that a snapshot may name, and forget those that no later one can."""
        self._adopt_restored()
        if predecessor_id is None:
            return {}
        for older in [number for number in list(self._chains) if number < predecessor_id]:
            del self._chains[older]
        chains = self._chains.get(predecessor_id, {})
        return {
            name: self._with_consolidated(name, chain, predecessor_id, checkpoint_id)
            for name, chain in chains.items()
            if chain.covers > self._begun_again.get(name, -1)
        }

    def chains_of(self, checkpoint_id: int) -> Mapping[StateName, Chain]:
        """Return the chains of a checkpoint that is stored, if they are still known. Any thread may call it."""
        return self._chains.get(checkpoint_id, {})

    def begin_again(self, name: StateName) -> None:
        """Let the next snapshot store a state whole: nothing that was stored of it so far may be named."""
        if self.newest_id is not None:
            self._begun_again[name] = self.newest_id

    @property
    def oldest_id(self) -> int | None:
        """Return the oldest checkpoint that a chain covers; None if there is no chain."""
        return min((chain.covers for chains in list(self._chains.values()) for chain in chains.values()), default=None)

    def note_stored(self, checkpoint_id: int, chains: dict[StateName, Chain]) -> None:
        """Note the chains of a checkpoint that is stored. Called in the writer's thread."""
        self._chains[checkpoint_id] = chains
        for name, consolidated in list(self._consolidated.items()):
            if consolidated.taken_by == checkpoint_id:
                self._consolidated.pop(name, None)  # the subtask's thread may have done so just now

    def on_discarded(self, checkpoint_id: int) -> None:
        """Let later snapshots name the consolidated states of a given-up checkpoint. Any thread may call it."""
        for consolidated in list(self._consolidated.values()):
            if consolidated.taken_by == checkpoint_id:
                consolidated.taken_by = None

    # ---- consolidation ------------------------------------------------------------------------------------------

    def consolidations(
        self, chains: Mapping[StateName, Chain], checkpoint_id: int, whole: Callable[[StateName], StateSnapshot]
    ) -> list[Consolidation]:
        """Begin to consolidate states of `chains`, which a snapshot names. `whole`: returns a state as it is now."""
        begun = []
        for name, chain in chains.items():
            is_begun = name in self._consolidated or checkpoint_id <= self._consolidating.get(name, -1)
            if chain.is_to_be_consolidated and not is_begun:
                self._consolidating[name] = _NEVER
                begun.append(Consolidation(name, checkpoint_id, whole(name), self))
        return begun

    def on_consolidated(self, name: StateName, checkpoint_id: int, runs: tuple[StoredState, ...] | None) -> None:
        """Note that a state was stored whole as it was at a checkpoint's barrier; None, or no run: that it was not, for
        a chain has to begin with something.
        """
        if not runs:
            self._consolidating[name] = checkpoint_id + _FAILED_FOR
            return
        self._consolidated[name] = _Consolidated(self.new_chain(checkpoint_id, runs, checkpoint_id))
        self._consolidating.pop(name, None)

    def _with_consolidated(self, name: StateName, chain: Chain, predecessor_id: int, checkpoint_id: int) -> Chain:
        """Return a chain in which what was consolidated is in place of all runs up to its barrier. Only one checkpoint
        names it first: it belongs to that one, and is deleted with it if it is aborted.

        A chain that a later checkpoint has begun does not say what was deleted before. Without this: the state is
        stored whole once more, without the keys that are gone, and what was consolidated before brings them back.
        """
        consolidated = self._consolidated.get(name)
        if consolidated is None:
            return chain
        taken_by = consolidated.taken_by
        is_gone = taken_by is not None and taken_by <= predecessor_id
        begun_at = max(chain.whole_at, self._begun_again.get(name, -1))
        if is_gone or consolidated.chain.covers <= begun_at:
            self._consolidated.pop(name, None)
        elif taken_by is None:
            consolidated.taken_by = checkpoint_id
            return chain.behind(consolidated.chain)
        return chain

    # ---- restoring ----------------------------------------------------------------------------------------------

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        """Record the restored runs that may be referenced."""
        self._restored_id = self.newest_id = checkpoint_id
        for run in stored:
            self._restored.setdefault((run.operator, run.name), []).append(run)

    def on_run_restored(self, name: StateName) -> None:
        self._restored_runs[name] += 1

    def _adopt_restored(self) -> None:
        """Take the restored runs of a state for its chain, if all of them may be named."""
        if self._restored_id is None:
            return
        self._chains[self._restored_id] = {
            name: self.new_chain(self._restored_id, tuple(runs), self._restored_id)
            for name, runs in self._restored.items()
            if len(runs) == self._restored_runs[name]
        }
        self._restored_id = None
        self._restored.clear()


class Named(NamedTuple):
    """Holds the states that a snapshot may name. `untouched`: those that were not used since the restore; `named`: the
    chains by state; `chains` None: checkpoints are not incremental.
    """

    untouched: UntouchedState
    chains: Chains | None
    named: Mapping[StateName, Chain]
    checkpoint_id: int


def unchained() -> Named:
    """Return no names, for a snapshot that stores its states whole."""
    return Named(UntouchedState([], {}), None, {}, 0)


class ChainedSnapshot(ABC):
    """Implements `StateSnapshot`: yields of each state the runs of its chain, if it may be named, and then new ones."""

    expected_bytes = 0
    consolidations: Sequence[Consolidation] = ()

    def __init__(self, declared: list[StateSchema], named: Named) -> None:
        self.schemas = declared + named.untouched.schemas
        self._untouched, self._chains, self._named, self._checkpoint_id = named
        self._added: dict[StateName, int] = {}
        """The number of runs that were encoded, by state."""
        self._discarded = False

    @abstractmethod
    def _new_runs(self) -> Iterator[tuple[StateName, Iterable[EncodedState]]]:
        """Yield the states that were used, each with what was stored after its chain, or all of it."""

    @abstractmethod
    def _release(self) -> None:
        """Release the view. Any thread may call it, more than once."""

    def encode(self) -> Iterator[EncodedState | StoredState]:
        try:
            if self._discarded:
                return
            # Those that were not used since the restore: named where they lie, or as they were.
            for schema in self._untouched.schemas:
                name = (schema.operator, schema.name)
                kept = {} if name in self._named else {name: self._untouched.runs.get(name, [])}
                yield from self._runs_of(name, UntouchedState([], kept).encode())
            for name, new in self._new_runs():
                yield from self._runs_of(name, new)
        except Exception:
            # After `discard`, another thread may change or close what is read.
            if not self._discarded:
                raise
        finally:
            self._release()

    def _runs_of(self, name: StateName, new: Iterable[EncodedState]) -> Iterator[EncodedState | StoredState]:
        self._added[name] = 0
        if (chain := self._named.get(name)) is not None:
            yield from chain.runs
        for run in new:
            self._added[name] += 1
            yield run

    def discard(self) -> None:
        self._discarded = True
        if self._chains is not None:
            self._chains.on_discarded(self._checkpoint_id)
        self._release()

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


class ChainedRestore(RestoringBackend):
    """Reports the runs that backends in memory restore to `_changes`; None: checkpoints are not incremental."""

    _changes: Chains | None

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        if self._changes is not None:
            self._changes.on_restored(checkpoint_id, stored)

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        super().restore(operator, name, data, key_groups)
        if self._changes is not None:
            self._changes.on_run_restored((operator, name))

    def _store_whole(self, name: StateName) -> None:
        if self._changes is not None:
            self._changes.begin_again(name)
