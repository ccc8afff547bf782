"""Holds what the RocksDB backends of rows and of columns have in common: the database of one subtask, its checkpoints,
and restored runs until their states are asked for.
"""

from __future__ import annotations

from typing import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import RestoringSubtask, StateError, StoredState
from penstock.state.changes import Changes
from penstock.state.codecs import RestoredRun, write_stream
from penstock.state.restored import StateName, UntouchedState
from penstock.state.rocksdb.database import MAKE_ROOM, PREFIX_BYTES, Database, StoredTable
from penstock.state.rocksdb.database_copies import DatabaseCopies, OpenedCopy
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import EntryFilter, RocksDBSnapshot

RestoreFirst = Callable[[StateName, Iterable[bytes], range], None]
"""(state, runs, key groups): restores runs before those that were restored already"""


class LocalState:
    """Keeps the state of one subtask in a RocksDB of its own. If `incremental`, its checkpoints name what has not
    changed since their predecessor.
    """

    def __init__(self, settings: RocksDBSettings, operator_names: Mapping[str, str], incremental: bool) -> None:
        names = ", ".join(f"'{name}'" for name in operator_names.values())
        self.settings = settings
        self._described = f"operator {names}" if names else "a subtask"
        self.database = Database(settings, self._described)
        self._changes = Changes() if incremental else None
        self._copies: DatabaseCopies | None = None
        self._opened = OpenedCopy()
        self._subtask: RestoringSubtask | None = None
        self._claimed: dict[StateName, int] = {}
        self._prefixes = 0
        self._spooled = 0
        self._closed = False

    def new_prefix(self, name: StateName) -> bytes:
        """Return what the keys of one more state begin with: those that it has in the database already, if it is
        claimed.
        """
        number = self._claimed.get(name)
        if number is None:
            number = self._prefixes
            self._prefixes += 1
        return number.to_bytes(PREFIX_BYTES, "big")

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def changed(self, name: StateName) -> dict[bytes, bool] | None:
        """Return where to note the keys of a state that change, and whether they have an entry now; None: nobody wants
        to know.
        """
        return None if self._changes is None else self._changes.now(name)

    def limit_changes(self) -> None:
        if self._changes is not None:
            self._changes.limit()

    def snapshot(
        self,
        tables: Sequence[StoredTable],
        untouched: Callable[[], UntouchedState],
        restore_first: RestoreFirst,
        checkpoint_id: int,
        predecessor_id: int | None,
        filters: Mapping[StateName, EntryFilter] | None = None,
    ) -> RocksDBSnapshot:
        """Return a view of what is in the database now. `filters`: see `RocksDBSnapshot`. `restore_first`: see
        `claim`.
        """
        since = {} if self._changes is None else self._changes.cut(checkpoint_id, predecessor_id)
        for name in [name for name in self._opened.states if name not in since]:
            self._insert_again(name, restore_first)  # nobody has asked for it, and it is written whole
        if self._copies is not None:
            self._copies.on_snapshot(checkpoint_id, tables)
        return RocksDBSnapshot(tables, untouched(), self.database, self._changes, since, checkpoint_id, filters or {})

    # ---- restoring ----------------------------------------------------------------------------------------------

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        if self._changes is not None:
            self._changes.on_restored(checkpoint_id, stored)

    def on_run_restored(self, name: StateName) -> None:
        if self._changes is not None:
            self._changes.on_run_restored(name)

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        """Open a copy of the database, if there is one, and take copies from now on."""
        if subtask.backup is None or self._changes is None:
            return frozenset()
        self._subtask = subtask
        self._copies = DatabaseCopies(subtask, self.database, self._changes, lambda: self._prefixes)
        self._opened = self._copies.open_best()
        self._prefixes = self._opened.prefixes
        for run in self._opened.restored:
            self._changes.on_run_restored((run.operator, run.name))
        return self._opened.restored

    def claim(self, declared: StateSchema, restore_first: RestoreFirst) -> None:
        """Let a state that is asked for have the entries that it has in the database, or, if it is declared differently
        now, the runs that these came from. `restore_first`: restores them.
        """
        name = (declared.operator, declared.name)
        copied = self._opened.states.get(name)
        if copied is None:
            return
        if copied.schema != declared:
            self._insert_again(name, restore_first)
        else:
            del self._opened.states[name]
            self._claimed[name] = copied.prefix

    def _insert_again(self, name: StateName, restore_first: RestoreFirst) -> None:
        assert self._subtask is not None
        self.database.delete_state(self._opened.states.pop(name).prefix)
        runs = (run for run in self._subtask.runs if run in self._opened.restored and (run.operator, run.name) == name)
        restore_first(name, map(self._subtask.read, runs), self._subtask.key_groups)

    def is_claimed(self, name: StateName) -> bool:
        """Return whether a state has entries from a copy of the database."""
        return name in self._claimed

    def begin_again(self, name: StateName) -> None:
        """Let the next checkpoint store a state whole."""
        if self._changes is not None:
            self._changes.begin_again(name)

    def check_room(self, stored_bytes: int) -> None:
        """Raise `StateError` if the disk has less room than the state that is to be restored takes."""
        directory = self.database.directory
        if directory.free_bytes < stored_bytes:
            raise StateError(
                f"the state that {self._described} restores takes at least {stored_bytes / 1024 / 1024:.1f} MB in "
                f"RocksDB. {directory.room}: {MAKE_ROOM}"
            )

    def spooled(self, run: RestoredRun) -> RestoredRun:
        """Return the run as batches of a mapped file, which take no memory until they are read."""
        if not run.batches:
            return run
        self._spooled += 1
        path = self.database.directory.path / f"restored-{self._spooled}"
        try:
            with pa.OSFile(str(path), "wb") as file:
                file.write(write_stream(run.schema, run.batches))
        except OSError as error:
            raise self.database.failure("cannot take what is being restored", error) from error
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as reader:
            batches = list(reader)
        path.unlink()  # its room is free as soon as the batches are gone
        return RestoredRun(run.declared, run.schema, batches, run.deletes)

    def close(self) -> None:
        """Delete the files. Snapshots can still be read."""
        if not self._closed:
            self._closed = True
            if self._copies is not None:
                self._copies.close()
            self.database.close()
