"""Implements the common part of the backends of row functions: the current key, handles, declared states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Iterable, Iterator, Mapping, TypeVar

import pyarrow as pa

from penstock.common.row_types.named_rows import reducing
from penstock.common.typeinfo import TypeInformation
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import SliceAccess, StateSchemaError, StateSnapshot
from penstock.state.cleanup import Cleanup, Pace, Walk
from penstock.state.codecs import RestoredRun, StateCodec, codec_of, stream_schema
from penstock.state.evolution import OTHER_KIND, Evolution, changed_text, evolution_of
from penstock.state.heap.handles import (
    AggregatingHandle,
    CurrentKey,
    EntryTable,
    Handle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    ValueHandle,
)
from penstock.state.heap.ttl_handles import ExpiringHandle, expiring_handle
from penstock.state.restored import ConvertedBatches, RestoringBackend, StateName
from penstock.state.ttl import StampedType, TimeToLive, WallClock, has_stamps, system_wall_ms

TableT = TypeVar("TableT", bound=EntryTable)


class RowStateBackend(RestoringBackend, ABC, Generic[TableT]):
    """Keeps keyed state of one subtask, a table per state. `operator_names` (uid -> name) are for messages; `wall_ms`
    is the time by which entries expire.
    """

    def __init__(
        self, max_parallelism: int, operator_names: Mapping[str, str] | None = None, wall_ms: WallClock = system_wall_ms
    ) -> None:
        super().__init__(operator_names)
        self._max_parallelism = max_parallelism
        self._wall_ms = wall_ms
        self._at = CurrentKey()
        self._window_at = CurrentKey()
        self._tables: dict[StateName, TableT] = {}
        self._codecs: dict[StateName, tuple[StateCodec, pa.Schema]] = {}
        """The codec of each state, with the schema of its batches."""
        self._handles: dict[StateName, Handle] = {}
        self._cleanups: list[Cleanup] = []
        """The cleanups of the states whose expired entries are removed between slices."""

    # ---- the current key ----------------------------------------------------------------------------------------

    def set_current_key(self, key: Any, key_group: int) -> None:
        at = self._at
        at.key = key
        at.key_group = key_group

    def clear_current_key(self) -> None:
        """Let there be no current key: every use of keyed state is an error until one is set."""
        self._at.clear()

    def current_key(self) -> Any:
        return self._at.key

    def current_key_group(self) -> int:
        key_group: int = self._at.key_group
        return key_group

    def forget(self, key_group: int) -> None:
        """Do nothing: entries are on the disk."""

    # ---- states -------------------------------------------------------------------------------------------------

    def has_restored(self, operator: str, name: str) -> bool:
        """Return whether the checkpoint that is being restored has such a state."""
        return self._restored_schema((operator, name)) is not None

    def state(self, operator: str, descriptor: Any) -> Any:
        """Return the handle. Raises `StateSchemaError` if the state was declared differently before."""
        return self._state(operator, descriptor, self._at)

    def set_current_window(self, window: Any) -> None:
        """Let all handles of `state_of_window` be those of the current key and this window."""
        self._window_at.key = (self._at.key, window)
        self._window_at.key_group = self._at.key_group

    def state_of_window(self, operator: str, descriptor: Any, window: Any) -> Any:
        """Return the state of the current key and a window. It is valid until the next call."""
        self.set_current_window(window)
        return self._state(operator, descriptor, self._window_at)

    def _state(self, operator: str, descriptor: Any, at: CurrentKey) -> Any:
        name = (operator, descriptor.name)
        codec = codec_of(descriptor)
        declared = StateSchema(operator, descriptor.name, codec.kind, codec.name, codec.ttl is not None)
        table = self._tables.get(name)
        if table is not None:
            self._check(table.schema, declared)
            self._check_ttl(name, codec)
            return self._handles[name]
        with self._failure.noted():
            self._before_fitting(declared)
            runs = self._fitted(name, partial(self._evolution, declared, codec.type))
            table = self._new_table(declared, codec, self._stamped(name, codec, runs))
        self._tables[name] = table
        self._codecs[name] = codec, stream_schema(declared, codec.stored_type)
        self._handles[name] = handle = _handle(descriptor, table, at, codec, self._wall_ms)
        if isinstance(handle, ExpiringHandle) and codec.ttl is not None:
            pace = self._cleanup_pace(codec.ttl)
            if pace is not None:
                walk = self._walk(table)
                self._cleanups.append(Cleanup(table, handle, codec.ttl, walk, pace, self._wall_ms))
        return handle

    def _clean_up(self, rows: int) -> None:
        """Remove expired entries after a slice of `rows`."""
        for cleanup in self._cleanups:
            cleanup.run(rows)

    def _expired_ms(self, name: StateName) -> int | None:
        """Return the time of last use up to which a full snapshot leaves entries out; None: it writes all."""
        ttl = self._codecs[name][0].ttl
        return None if ttl is None or not ttl.cleans_snapshots else self._wall_ms() - ttl.ttl_ms

    def _stamped(self, name: StateName, codec: StateCodec, runs: list[RestoredRun]) -> list[RestoredRun]:
        """Return restored runs with the times that a time to live needs. Entries of a state that had none were used
        now. If that has changed, the next checkpoint stores the state whole: its next restore would come later.
        """
        if any(has_stamps(run.schema) != (codec.ttl is not None) for run in runs if not run.deletes):
            self._store_whole(name)
        stored = codec.stored_type
        if not isinstance(stored, StampedType):
            return runs
        now_ms = self._wall_ms()
        return [
            run
            if run.deletes or has_stamps(run.schema)
            else replace(run, batches=ConvertedBatches(run.batches, partial(stored.stamped, now_ms=now_ms)))
            for run in runs
        ]

    def revoke(self) -> None:
        for handle in self._handles.values():
            handle.revoke()

    def _evolution(self, new: StateSchema, type: TypeInformation, kind: str, codec: str) -> Evolution | None:
        if (kind, codec) == (new.kind, new.codec):
            return None
        described = self._described_with_uid((new.operator, new.name))
        told = changed_text(described, f"{new.kind} state of {new.codec}", f"{kind} state of {codec}")
        if kind != new.kind:
            raise StateSchemaError(f"{told}: {OTHER_KIND}")
        return evolution_of(told, codec, type)

    def _check(self, old: StateSchema, new: StateSchema) -> None:
        """Refuse a state that the program has declared differently before."""
        if (old.kind, old.codec) != (new.kind, new.codec):
            raise StateSchemaError(
                f"{self._described_with_uid((new.operator, new.name))} is declared as {new.kind} state of {new.codec}, "
                f"but in the same program it is {old.kind} state of {old.codec}: declare both alike, or give one of "
                "them another name"
            )

    def _check_ttl(self, name: StateName, codec: StateCodec) -> None:
        before = self._codecs[name][0].ttl
        if before != codec.ttl:
            raise StateSchemaError(
                f"{self._described(name)} is declared twice in this program, with {_told(codec.ttl)} and with "
                f"{_told(before)}: give both descriptors the same StateTtlConfig"
            )

    # ---- what differs -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def slices(self) -> SliceAccess: ...

    @abstractmethod
    def _cleanup_pace(self, ttl: TimeToLive) -> Pace | None:
        """Return the number of entries to check between slices; None: expired ones stay until they are read."""

    @abstractmethod
    def _walk(self, table: TableT) -> Walk:
        """Return an iterator over a table's entries that tolerates changes."""

    @abstractmethod
    def keys_of(self, operator: str, name: str) -> Iterable[tuple[Any, int]]: ...

    @abstractmethod
    def entries(self, operator: str, name: str) -> Iterator[tuple[Any, int, Any]]: ...

    @abstractmethod
    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> StateSnapshot: ...

    @abstractmethod
    def _new_table(self, declared: StateSchema, codec: StateCodec, runs: list[RestoredRun]) -> TableT:
        """Return the table of a state that is asked for the first time, with what was restored of it."""


def _told(ttl: TimeToLive | None) -> str:
    return "no time to live" if ttl is None else f"a time to live of {ttl.ttl_ms} ms ({ttl})"


def _handle(descriptor: Any, table: EntryTable, at: CurrentKey, codec: StateCodec, wall_ms: WallClock) -> Handle:
    changeable = codec.changeable
    if codec.ttl is not None:
        return expiring_handle(descriptor, table, at, changeable, codec.ttl, wall_ms)
    match table.schema.kind:
        case "value":
            return ValueHandle(table, at, changeable)
        case "list":
            return ListHandle(table, at, changeable)
        case "map":
            return MapHandle(table, at, changeable)
        case "reducing":
            reduce = reducing(descriptor.get_reduce_function(), descriptor.type_info)
            return ReducingHandle(table, at, changeable, reduce)
        case _:
            return AggregatingHandle(table, at, changeable, descriptor.get_agg_function())
