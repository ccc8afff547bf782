"""Defines state whose entries expire: how long they live, and how the time of their last use is kept and stored.

An entry in memory is (time of its last use in ms, value); each element of a list and each entry of a map is such a
pair. In a checkpoint the times are a column of their own behind those of the value. So the type of a state does not say
whether its entries expire: the same runs are restored with and without a time to live.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.common.row_types.composite_types import ListType
from penstock.common.row_types.scalar_types import LONG
from penstock.common.typeinfo import LAST_ACCESS_COLUMN, TypeInformation

WallClock = Callable[[], int]
"""Returns milliseconds since the epoch."""


def system_wall_ms() -> int:
    """Return the machine's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class TimeToLive:
    """Holds the time to live of a state's entries, from its descriptor.

    `cleanup_size` and `cleanup_per_row`: how many entries in memory are looked at for each access, and whether other
    rows count as accesses; 0: none. `cleans_disk`: whether entries in RocksDB are. `cleans_snapshots`: whether what has
    expired is left out of snapshots of everything.
    """

    ttl_ms: int
    updates_on_read: bool = False
    returns_expired: bool = False
    cleanup_size: int = 0
    cleanup_per_row: bool = False
    cleans_disk: bool = False
    cleans_snapshots: bool = False

    @staticmethod
    def of(config: Any) -> TimeToLive | None:
        """Return the settings of a `StateTtlConfig`; None if entries do not expire."""
        if config is None or not config.is_enabled():
            return None
        cleanup = config.get_cleanup_strategies()
        in_memory = cleanup.get_incremental_cleanup_strategy()
        ttl = config.get_ttl()
        return TimeToLive(
            ttl_ms=ttl.to_milliseconds() if hasattr(ttl, "to_milliseconds") else ttl.to_millis(),
            updates_on_read=config.get_update_type().name == "OnReadAndWrite",
            returns_expired=config.get_state_visibility().name == "ReturnExpiredIfNotCleanedUp",
            cleanup_size=0 if in_memory is None else in_memory.get_cleanup_size(),
            cleanup_per_row=in_memory is not None and in_memory.run_cleanup_for_every_record(),
            cleans_disk=cleanup.get_rocksdb_compact_filter_cleanup_strategy() is not None,
            cleans_snapshots=cleanup.in_full_snapshot(),
        )


@dataclass(frozen=True)
class StampedType(TypeInformation):
    """Describes entries with the times of their last use. `type`: the type of the values; `kind`: the kind of the
    state."""

    type: TypeInformation
    kind: str

    @cached_property
    def schema(self) -> pa.Schema:
        stamps = _STAMPS.arrow_type if self._has_many else pa.int64()
        return self.type.schema.append(pa.field(LAST_ACCESS_COLUMN, stamps))

    @property
    def _has_many(self) -> bool:
        return self.kind in ("list", "map")

    @property
    def freeze(self) -> Callable[[Any], Any] | None:
        return self.type.freeze

    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        if self.kind == "list":
            values: list[Any] = [[value for _, value in items] for items in rows]
            return [*self.type.encode(values), _STAMPS.encode_column([[stamp for stamp, _ in items] for items in rows])]
        if self.kind == "map":
            values = [{key: value for key, (_, value) in items.items()} for items in rows]
            stamps = [[stamp for stamp, _ in items.values()] for items in rows]
            return [*self.type.encode(values), _STAMPS.encode_column(stamps)]
        return [*self.type.encode([value for _, value in rows]), pa.array([stamp for stamp, _ in rows], pa.int64())]

    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        values, column = self.type.decode(batch), batch.column(LAST_ACCESS_COLUMN)
        if self.kind == "list":
            return [list(zip(stamps, items)) for stamps, items in zip(_STAMPS.decode_column(column), values)]
        if self.kind == "map":
            return [
                dict(zip(items, zip(stamps, items.values())))
                for stamps, items in zip(_STAMPS.decode_column(column), values)
            ]
        return list(zip(column.to_pylist(), values))

    def stamped(self, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
        """Return a stored batch that has no times, with `now_ms` as the time of all entries."""
        at = len(self.type.schema)
        if self._has_many:
            offsets = batch.column(0).offsets
            offsets = pa.array(offsets.to_numpy() - offsets[0].as_py(), pa.int32())
            stamps: pa.Array = pa.array(np.full(offsets[-1].as_py(), now_ms), pa.int64())
            column = pa.ListArray.from_arrays(offsets, stamps, type=_STAMPS.arrow_type)
        else:
            column = pa.array(np.full(batch.num_rows, now_ms), pa.int64())
        columns, fields = list(batch.columns), list(batch.schema)
        columns.insert(at, column)
        fields.insert(at, self.schema.field(at))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))

    @property
    def text(self) -> str:
        """Return that of the values."""
        return self.type.text


_STAMPS = ListType(LONG)


def unexpired(kind: str, kept: Any, expired_ms: int) -> Any:
    """Return an entry without the parts that were last used at `expired_ms` or before: `kept` itself if nothing has
    expired, None if everything has. `kind`: the kind of the state. The entry is not changed.
    """
    if kept is None:
        return None
    if kind == "list":
        if all(item[0] > expired_ms for item in kept):
            return kept
        return [item for item in kept if item[0] > expired_ms] or None
    if kind == "map":
        if all(item[0] > expired_ms for item in kept.values()):
            return kept
        return {key: item for key, item in kept.items() if item[0] > expired_ms} or None
    return kept if kept[0] > expired_ms else None


def oldest_ms(kind: str, kept: Any) -> int:
    """Return the oldest time in an entry. `kind`: the kind of the state."""
    if kind == "list":
        return min(map(_used_ms, kept))
    return min(map(_used_ms, kept.values())) if kind == "map" else _used_ms(kept)


def _used_ms(stamped: tuple[int, Any]) -> int:
    return stamped[0]


def has_stamps(schema: pa.Schema) -> bool:
    """Return whether stored entries have the times of their last use."""
    return LAST_ACCESS_COLUMN in schema.names
