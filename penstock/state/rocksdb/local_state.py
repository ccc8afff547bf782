"""Holds the common part of the RocksDB backends of rows and of columns: the database of one subtask, its checkpoints,
and restored runs until their states are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import RestoringSubtask, StateError, StoredState
from penstock.state.chains import Named, unchained
from penstock.state.changes import Changes
from penstock.state.codecs import RestoredRun, read_stream, write_stream
from penstock.state.restored import RestoringBackend, StateName, UntouchedState
from penstock.state.rocksdb.claimed_room import claim, release
from penstock.state.rocksdb.database import MAKE_ROOM, PREFIX_BYTES, Batch, Database, Entry
from penstock.state.rocksdb.database_copies import DatabaseCopies, OpenedCopy
from penstock.state.rocksdb.lazy_restore import LazyChain, LazyRestore
from penstock.state.rocksdb.lazy_state import Entries
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import ChangedState, EntryFilter, RocksDBSnapshot, StoredTable

RestoreFirst = Callable[[StateName, Iterable[bytes], range], None]
"""(state, runs, key groups): restores runs before those that were restored already"""


class LocalState:
    """Keeps the state of one subtask in a RocksDB of its own. `changes`: knows which checkpoints its own may name;
    None: they are not incremental.
    """

    def __init__(self, settings: RocksDBSettings, operator_names: Mapping[str, str], changes: Changes | None) -> None:
        names = ", ".join(f"'{name}'" for name in operator_names.values())
        self.settings = settings
        self._described = f"operator {names}" if names else "a subtask"
        self.database = Database(settings, self._described)
        self._changes = changes
        self._copies: DatabaseCopies | None = None
        self._opened = OpenedCopy()
        self._subtask: RestoringSubtask | None = None
        self._lazy: LazyRestore | None = None
        self._failure = self.database.first_failure
        self._claimed: dict[StateName, int] = {}
        self._taken_lazily: dict[StateName, LazyChain] = {}
        """The chains of states that were asked for, until their tables are made."""
        self._prefixes = 0
        self._spooled = 0
        self._closed = False

    def new_prefix(self, name: StateName) -> bytes:
        """Return the key prefix of one more state: those that it has in the database already, if it is claimed."""
        number = self._claimed.get(name)
        return self._next_prefix() if number is None else number.to_bytes(PREFIX_BYTES, "big")

    def _next_prefix(self) -> bytes:
        self._prefixes += 1
        return (self._prefixes - 1).to_bytes(PREFIX_BYTES, "big")

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(
        self,
        tables: Sequence[StoredTable],
        untouched: Callable[[], UntouchedState],
        restore_first: RestoreFirst,
        checkpoint_id: int,
        predecessor_id: int | None,
        filters: Mapping[StateName, EntryFilter] | None = None,
    ) -> RocksDBSnapshot:
        """Return a view of the database. `filters`: see `RocksDBSnapshot`. `restore_first`: see `claim`."""
        since = {} if self._changes is None else self._changes.cut(checkpoint_id, predecessor_id)
        changed: dict[StateName, ChangedState] = {}
        by_name = {(table.schema.operator, table.schema.name): table for table in tables}
        for name in by_name.keys() & since.keys():
            known = by_name[name].changed_since(since[name])
            if known is None:
                del since[name]
            else:
                changed[name] = known
        for name in [name for name in self._opened.states if name not in since]:
            # Nobody has asked for this state, and the checkpoint stores it whole.
            self._insert_again(name, restore_first)
        self._failure.check()
        if self._lazy is not None:
            for name in self._lazy.unclaimed - set(since):
                self._restore_runs(name, self._lazy.take(name).runs, restore_first)
        if not self.is_loading:
            release(self.database.directory)
            if self._copies is not None:
                self._copies.on_snapshot(checkpoint_id, tables)
        unnamed = [table.prefix for name, table in by_name.items() if name not in changed]
        view = self.database.view({prefix: self._scan(prefix) for prefix in unnamed})
        size = self.settings.range_bytes
        chains = {name: s.chain for name, s in since.items()}
        left_out = filters or {}
        snapshot = RocksDBSnapshot(
            tables, Named(untouched(), self._changes, chains, checkpoint_id), view, changed, left_out, size
        )
        if self._changes is not None and not self.is_loading:

            def whole(name: StateName) -> RocksDBSnapshot:
                table = by_name[name]
                alone = self.database.view({table.prefix: self.database.scan(table.prefix)})
                return RocksDBSnapshot([table], unchained(), alone, {}, left_out, size)

            named = {name: chains[name] for name in changed}
            snapshot.consolidations = self._changes.consolidations(named, checkpoint_id, whole)
        return snapshot

    def _scan(self, prefix: bytes) -> Iterator[Entry]:
        """Return all entries of a state as they are now; what is missing of it is loaded when it is reached."""
        lazy = None if self._lazy is None else self._lazy.state_of(prefix)
        return self.database.scan(prefix) if lazy is None else lazy.at_barrier()

    # ---- what is loaded lazily ----------------------------------------------------------------------------------

    @property
    def is_loading(self) -> bool:
        """Return whether a part of the restored state is not in the database yet."""
        return self._lazy is not None and self._lazy.is_loading

    def write(self, batch: Batch) -> None:
        """Write a batch. What it overwrites is loaded first."""
        with self._failure.noted():
            if self._lazy is not None and self._lazy.is_loading:
                self._lazy.need(batch)
            self.database.write(batch)

    def check(self) -> None:
        """Raise the error of a failed background task, or one that user code may have caught."""
        self._failure.check()

    def metrics(self) -> dict[str, int]:
        """Return RocksDB's own figures, as far as the options ask for them, and how much was loaded lazily."""
        found = self.database.metrics()
        if self._lazy is not None and self._lazy.bytes:
            found |= {"restore.bytes": self._lazy.bytes, "restore.loaded-bytes": self._lazy.loaded_bytes}
        return found

    # ---- restoring ----------------------------------------------------------------------------------------------

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        if self._changes is not None:
            self._changes.on_restored(checkpoint_id, stored)

    def on_run_restored(self, name: StateName) -> None:
        if self._changes is not None:
            self._changes.on_run_restored(name)

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        """Open a copy of the database, if there is one, and take copies from now on; else restore lazily."""
        if self._changes is None:
            return frozenset()
        self._subtask = subtask
        if subtask.backup is not None:
            self._copies = DatabaseCopies(subtask, self.database, self._changes, lambda: self._prefixes)
            self._opened = self._copies.open_best()
            self._prefixes = self._opened.prefixes
        restored = self._opened.restored
        if not restored and self.settings.restores_lazily and subtask.load_apart is not None:
            self._lazy = LazyRestore(self.database, self._described, subtask)
            restored = self._lazy.runs
        for run in restored:
            self._changes.on_run_restored((run.operator, run.name))
        return restored

    def claim(self, declared: StateSchema, restored: StateSchema | None, restore_first: RestoreFirst) -> None:
        """Let a state that is asked for have the entries that it has in the database, or that are loaded lazily; if it
        is declared differently now, the runs that these come from. `restored`: how it was declared; `restore_first`:
        restores runs.
        """
        name = (declared.operator, declared.name)
        if self._lazy is not None and name in self._lazy.unclaimed:
            chain = self._lazy.take(name)
            if restored == declared:
                self._taken_lazily[name] = chain
            else:
                self._restore_runs(name, chain.runs, restore_first)
        copied = self._opened.states.get(name)
        if copied is None:
            return
        if copied.schema != declared:
            self._insert_again(name, restore_first)
        else:
            del self._opened.states[name]
            self._claimed[name] = copied.prefix

    def begin_lazily(self, name: StateName, table: StoredTable, decode: Callable[[bytes], Entries]) -> None:
        """Begin to load the state of a new table, if it is restored lazily. `decode`: returns the entries of a run."""
        chain = self._taken_lazily.pop(name, None)
        if chain is not None:
            assert self._lazy is not None
            self._lazy.begin(table, chain, decode, self._next_prefix)

    def read_run(self, schema: StateSchema, data: bytes) -> RestoredRun:
        """Return the subtask's part of a run of a state that is restored lazily."""
        assert self._subtask is not None
        run = read_stream(data, self._subtask.key_groups)
        if run.declared != f"{schema.kind} {schema.codec}":
            raise StateError(
                f"state '{schema.name}' of {self._described} is {schema.kind} state of {schema.codec}, but a part of "
                f"it in the checkpoint is {run.declared}: turn penstock.state.rocksdb.lazy-restore off"
            )
        return run

    def _restore_runs(self, name: StateName, runs: Iterable[StoredState], restore_first: RestoreFirst) -> None:
        assert self._subtask is not None
        restore_first(name, map(self._subtask.read, runs), self._subtask.key_groups)

    def _insert_again(self, name: StateName, restore_first: RestoreFirst) -> None:
        assert self._subtask is not None
        self.database.delete_state(self._opened.states.pop(name).prefix)
        runs = (run for run in self._subtask.runs if run in self._opened.restored and (run.operator, run.name) == name)
        self._restore_runs(name, runs, restore_first)

    def is_claimed(self, name: StateName) -> bool:
        """Return whether a state has entries from a copy of the database, or is restored lazily."""
        return name in self._claimed or name in self._taken_lazily

    def begin_again(self, name: StateName) -> None:
        """Let the next checkpoint store a state whole."""
        if self._changes is not None:
            self._changes.begin_again(name)

    def check_room(self, stored_bytes: int) -> None:
        """Raise `StateError` if the disk has less room than the state that is to be restored takes, with what other
        subtasks of the process are restoring there.
        """
        if self._lazy is not None:
            stored_bytes += sum(run.length_bytes for run in self._lazy.runs)
        directory = self.database.directory
        free_bytes, others_bytes = claim(directory, stored_bytes)
        if stored_bytes > 0 and free_bytes - others_bytes < stored_bytes:
            others = f", and that of other subtasks of its slot {_megabytes(others_bytes)} more" if others_bytes else ""
            raise StateError(
                f"the state that {self._described} restores takes at least {_megabytes(stored_bytes)} in "
                f"RocksDB{others}. {directory.room}: {MAKE_ROOM}"
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
            release(self.database.directory)
            if self._lazy is not None:
                self._lazy.close()
            if self._copies is not None:
                self._copies.close()
            self.database.close()


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1024 / 1024:.1f} MB"


class LocalRestore(RestoringBackend):
    """Implements the restore, and the database's life, for the backends of rows and of columns."""

    _local: LocalState

    def check_room(self, stored_bytes: int) -> None:
        self._local.check_room(stored_bytes)

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        self._local.on_restored(checkpoint_id, stored)

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        super().restore(operator, name, data, key_groups)
        self._local.on_run_restored((operator, name))

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        return self._local.restore_copy(subtask)

    def metrics(self) -> dict[str, int]:
        """Return RocksDB's own figures, as far as the options ask for them."""
        return self._local.metrics()

    def _before_fitting(self, declared: StateSchema) -> None:
        restored = self._restored_schema((declared.operator, declared.name))
        self._local.claim(declared, restored, self._restore_first)

    def _store_whole(self, name: StateName) -> None:
        self._local.begin_again(name)

    def _kept(self, run: RestoredRun) -> RestoredRun:
        return self._local.spooled(run)
