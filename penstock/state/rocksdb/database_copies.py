"""Keeps copies of a subtask's RocksDB next to the copies of its segments, so that a restart in place opens a database
where it would otherwise insert every entry again.

A copy is a checkpoint in RocksDB's sense: hard links of its files, which cost nothing to make and are never changed. It
is taken at any time t after checkpoint K has completed, while the stream continues, so it has what K stored (a chain of
runs per state, see `penstock.state.changes`), and some of what has changed since. That is no state of any checkpoint.
But all that has changed between K and t is in the runs that the first checkpoint M behind t has stored after those of
K. So for every checkpoint whose chain begins with that of M,

    the copy, and then the runs of the chain that come after those of K

is the state of that checkpoint, exactly: keys that have changed between K and t are in those runs, with their values,
or as deleted; all others are in the copy as they were at K. The names of runs are unique, so a chain that begins with
that of M has M in its past, whatever has been restored in between. A copy is *sealed*, and used, when M has completed.

Sizes of files are compared before a copy is opened. RocksDB compares the checksum of each block that it reads; what it
finds damaged fails the job as any failure of RocksDB does, and the copies are deleted first, so the restart that
follows reads runs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import RestoringSubtask, StateError, StoredState
from penstock.state.chains import Chain, Chains
from penstock.state.restored import StateName
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.snapshot import StoredTable

_FLUSH_MAX_S = 60.0
_PAUSE_S = 0.005
_WAIT_MAX = 64
_CONTENT, _SEAL, _FILES = "content.json", "sealed.json", "files"
_OF_THE_PROCESS = frozenset({"LOCK", "LOG"})


class Run(msgspec.Struct, frozen=True):
    """Names a run of entries in a segment."""

    path: str
    offset: int
    length_bytes: int
    crc: int


class CopiedState(msgspec.Struct, frozen=True):
    """Describes a state in a copy. `prefix`: the number that its keys begin with. `runs`: what a restore leaves out."""

    schema: StateSchema
    prefix: int
    runs: tuple[Run, ...]

    @property
    def name(self) -> StateName:
        return self.schema.operator, self.schema.name


class Content(msgspec.Struct, frozen=True):
    """Describes a copy. `key_groups`: first and behind last. `prefixes`: how many numbers of states are in use.
    `files`: sizes by name.
    """

    key_groups: tuple[int, int]
    key_type: str
    prefixes: int
    states: tuple[CopiedState, ...]
    files: dict[str, int]


class SealedState(msgspec.Struct, frozen=True):
    """Holds the chain prefix of a state: a checkpoint with that prefix may use the copy."""

    operator: str
    name: str
    runs: tuple[Run, ...]


@dataclass
class _Copy:
    """Holds a copy of this subtask. `taken_after`: the newest snapshot then. `sealed`: None until it may be used."""

    path: Path
    content: Content
    taken_after: int
    sealed: dict[StateName, tuple[Run, ...]] | None = None


@dataclass(frozen=True)
class OpenedCopy:
    """Describes an opened database. `restored`: the runs that need not be inserted; `states` have them."""

    states: dict[StateName, CopiedState] = field(default_factory=dict)
    restored: frozenset[StoredState] = frozenset()
    prefixes: int = 0


class DatabaseCopies:
    """Takes the copies of one subtask's database, and opens one at a restore. A copy that cannot be made or opened is
    given up with a warning. The thread of the snapshot writer takes them, the subtask's opens one. `prefixes`: how many
    numbers of states are in use.
    """

    def __init__(
        self, subtask: RestoringSubtask, database: Database, changes: Chains, prefixes: Callable[[], int]
    ) -> None:
        assert subtask.backup is not None
        self._prefixes = prefixes
        self._subtask = subtask
        self._backup = subtask.backup
        self._database = database
        self._changes = changes
        self._copies: list[_Copy] = []
        self._tables: dict[int, list[tuple[StateSchema, int]]] = {}
        """By snapshot: the states that were in the database."""
        self._waits = self._failures = 0
        self._is_closed = False
        self._source: Path | None = None
        database.on_failure = self.drop
        self._backup.on_completed.append(self.on_completed)

    def close(self) -> None:
        self._is_closed = True

    def drop(self) -> None:
        """Delete all copies, because the database cannot be read: they have files in common with it."""
        if self._is_closed:
            return  # a closed database cannot be read, which says nothing about its files
        for path in [copy.path for copy in self._copies]:
            self._backup.drop_database(path)
        if self._source is not None:
            self._backup.drop_database(self._source)
        self._copies.clear()

    # ---- taking -------------------------------------------------------------------------------------------------

    def on_snapshot(self, checkpoint_id: int, tables: Sequence[StoredTable]) -> None:
        self._tables[checkpoint_id] = [(table.schema, int.from_bytes(table.prefix, "big")) for table in tables]

    def on_completed(self, checkpoint_id: int) -> None:
        """Seal the newest copy, or take one, if it is time to."""
        if self._is_closed:
            return
        try:
            self._on_completed(checkpoint_id, self._changes.chains_of(checkpoint_id))
        except Exception as error:  # RocksDB's errors have no common class
            if not self._is_closed:
                self._backup.warn(
                    f"no local copy of {self._database.described}: {error}. A restart inserts its entries again "
                    "(execution.checkpointing.local-backup.dirs)"
                )
                self._put_off()

    def _on_completed(self, checkpoint_id: int, chains: Mapping[StateName, Chain]) -> None:
        tables = self._tables.pop(checkpoint_id, [])
        for older in [number for number in list(self._tables) if number < checkpoint_id]:
            self._tables.pop(older, None)
        newest = self._copies[-1] if self._copies else None
        if newest is not None and newest.sealed is None:
            if checkpoint_id <= newest.taken_after:
                return
            self._seal(newest, chains)
        if self._waits:
            self._waits -= 1
        elif self._uncovered_bytes(tables, chains) >= self._backup.database_copied_from_bytes:
            self._take(tables, chains)

    def _seal(self, copy: _Copy, chains: Mapping[StateName, Chain]) -> None:
        """Record the chain prefixes for which the copy may be used; give it up if the chains began again meanwhile."""
        sealed: dict[StateName, tuple[Run, ...]] = {}
        for state in copy.content.states:
            chain = chains.get(state.name)
            if chain is not None and chain.covers > copy.taken_after:
                runs = _runs(chain)
                if runs[: len(state.runs)] == state.runs:
                    sealed[state.name] = runs
        if not sealed:
            self._copies.remove(copy)
            self._backup.drop_database(copy.path)
            self._put_off()
            return
        _write(copy.path / _SEAL, tuple(SealedState(*name, runs) for name, runs in sealed.items()))
        copy.sealed = sealed
        self._failures = 0
        for older in self._copies[:-1]:
            self._backup.drop_database(older.path)
        del self._copies[:-1]

    def _put_off(self) -> None:
        """Wait for more checkpoints each time before another copy is taken."""
        self._failures += 1
        self._waits = min(2**self._failures, _WAIT_MAX)

    def _uncovered_bytes(self, tables: list[tuple[StateSchema, int]], chains: Mapping[StateName, Chain]) -> int:
        """Return the number of bytes that a restore from the newest copy would still insert. States that nobody has
        asked for are not in the database.
        """
        copied: dict[StateName, CopiedState] = {}
        sealed: Mapping[StateName, tuple[Run, ...]] = {}
        if self._copies and self._copies[-1].sealed is not None:
            copied = {state.name: state for state in self._copies[-1].content.states}
            sealed = self._copies[-1].sealed
        uncovered = 0
        for name in {(schema.operator, schema.name) for schema, _ in tables} & set(chains):
            chain = chains[name]
            runs, begins = _runs(chain), sealed.get(name)
            left_out = len(copied[name].runs) if begins is not None and runs[: len(begins)] == begins else 0
            uncovered += sum(run.length_bytes for run in runs[left_out:])
        return uncovered

    def _take(self, tables: list[tuple[StateSchema, int]], chains: Mapping[StateName, Chain]) -> None:
        # A state without runs is left out. The next checkpoint stores it whole, which does not say what has come and
        # gone since: what of that is in the copy would be there again.
        states = tuple(
            CopiedState(schema, prefix, _runs(chain))
            for schema, prefix in tables
            if (chain := chains.get((schema.operator, schema.name))) is not None and chain.runs
        )
        if not states:
            return
        path = self._backup.new_database()
        try:
            if _device(path) != _device(self._database.directory.path):
                raise StateError("it would lie on another disk than state.backend.rocksdb.localdir")
            self._flush()
            self._database.copy_to(path / _FILES)
            # Read after the copy was taken: snapshots up to here may be older than it.
            taken_after = self._changes.newest_id
            assert taken_after is not None
            groups = self._subtask.key_groups
            files = {file.name: file.stat().st_size for file in (path / _FILES).iterdir()}
            content = Content((groups.start, groups.stop), self._subtask.key_type, self._prefixes(), states, files)
            _write(path / _CONTENT, content)
        except BaseException:
            self._backup.drop_database(path)
            raise
        self._copies.append(_Copy(path, content, taken_after))

    def _flush(self) -> None:
        """Flush the memtables now: RocksDB's checkpoint would do it while it holds the interpreter's lock."""
        self._database.flush()
        deadline_s = time.monotonic() + _FLUSH_MAX_S
        while self._database.is_flushing:
            if time.monotonic() > deadline_s:
                raise StateError(f"RocksDB has not written what is in memory within {_FLUSH_MAX_S:.0f} s")
            time.sleep(_PAUSE_S)

    # ---- restoring ----------------------------------------------------------------------------------------------

    def open_best(self) -> OpenedCopy:
        """Open the database with the copy that contains most of the state to restore; with none if there is no sound
        one. Called before anything is in the database.
        """
        runs = self._by_state()
        found = [copy for path in self._backup.databases() if (copy := self._read(path, runs)) is not None]
        found.sort(key=lambda copy: -_bytes_of(_usable(copy, runs)))
        # 3.10: a copy is opened for a checkpoint behind it; later runs are inserted.
        for copy in found:
            usable = _usable(copy, runs)
            try:
                self._open(copy)
                break
            except Exception as error:
                self._backup.warn(
                    f"the local copy of {self._database.described} in {copy.path} cannot be used: {error}. It is "
                    "deleted, and the entries are inserted again"
                )
                self._backup.drop_database(copy.path)
        else:
            return OpenedCopy()
        left_out = {name: len(state.runs) for name, state in usable.items()}
        restored = frozenset(
            run for name, count in left_out.items() for run in self._stored_by_state().get(name, [])[:count]
        )
        for prefix in set(range(copy.content.prefixes)) - {state.prefix for state in usable.values()}:
            self._database.delete_state(prefix)
        return OpenedCopy(usable, restored, copy.content.prefixes)

    def _stored_by_state(self) -> dict[StateName, list[StoredState]]:
        found: dict[StateName, list[StoredState]] = {}
        for run in self._subtask.runs:
            found.setdefault((run.operator, run.name), []).append(run)
        return found

    def _by_state(self) -> dict[StateName, tuple[Run, ...]]:
        return {name: tuple(map(_run, runs)) for name, runs in self._stored_by_state().items()}

    def _read(self, path: Path, runs: Mapping[StateName, tuple[Run, ...]]) -> _Copy | None:
        """Return a sealed copy of this subtask's state; None if it is of another subtask or of other checkpoints."""
        try:
            content = msgspec.json.decode((path / _CONTENT).read_bytes(), type=Content)
            sealed = msgspec.json.decode((path / _SEAL).read_bytes(), type=tuple[SealedState, ...])
        except (OSError, msgspec.DecodeError):
            return None
        groups = self._subtask.key_groups
        if content.key_groups != (groups.start, groups.stop) or content.key_type != self._subtask.key_type:
            return None
        copy = _Copy(path, content, 0, {(state.operator, state.name): state.runs for state in sealed})
        return copy if _bytes_of(_usable(copy, runs)) else None

    def _open(self, copy: _Copy) -> None:
        files = copy.path / _FILES
        for name, size_bytes in copy.content.files.items():
            if (found := (files / name).stat().st_size) != size_bytes:
                raise StateError(f"{name} has {found} bytes, and had {size_bytes}")
        self._database.open_with(lambda directory: _link(files, directory))
        self._source = copy.path
        path = copy.path
        if self._backup.is_own(path):
            self._backup.keep_database(path)
        else:
            path = self._backup.new_database()
            _link(files, path / _FILES)
            for name in (_CONTENT, _SEAL):
                shutil.copyfile(copy.path / name, path / name)
        self._copies = [_Copy(path, copy.content, 0, copy.sealed)]
        self._backup.on_database_opened()


def _usable(copy: _Copy, runs: Mapping[StateName, tuple[Run, ...]]) -> dict[StateName, CopiedState]:
    """Return the states of a copy whose chains begin as the copy needs it."""
    sealed = copy.sealed or {}
    return {
        state.name: state
        for state in copy.content.states
        if (begins := sealed.get(state.name)) is not None and runs.get(state.name, ())[: len(begins)] == begins
    }


def _bytes_of(states: Mapping[StateName, CopiedState]) -> int:
    return sum(run.length_bytes for state in states.values() for run in state.runs)


def _runs(chain: Chain) -> tuple[Run, ...]:
    return tuple(map(_run, chain.runs))


def _run(stored: StoredState) -> Run:
    return Run(stored.segment.path, stored.offset, stored.length_bytes, stored.crc)


def _device(path: Path) -> int:
    return path.stat().st_dev


def _link(source: Path, target: Path) -> None:
    """Link the files that RocksDB never changes, and copy the others."""
    target.mkdir()
    for file in source.iterdir():
        if file.suffix == ".sst":
            os.link(file, target / file.name)
        elif file.name not in _OF_THE_PROCESS:
            shutil.copyfile(file, target / file.name)


def _write(path: Path, what: object) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(what))
    unfinished.rename(path)
