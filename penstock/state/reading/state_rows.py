"""Offers keyed state as rows: Arrow batches with the columns key, key_group and value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType, TupleType
from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN, LAST_ACCESS_COLUMN, RESERVED_COLUMNS
from penstock.protocol.values.keys import KeyDecoder
from penstock.state.backend import StateError
from penstock.state.reading.declared_types import has_pickles, parse_columns
from penstock.state.reading.key_reader import window_keys
from penstock.state.reading.pickles import as_text, readable
from penstock.state.reading.runs import StoredRuns
from penstock.state.reading.several_types import in_schema
from penstock.state.reading.shown_keys import ShownKeys
from penstock.state.stored_keys import OF_WINDOW
from penstock.storage.store import ObjectStore

KEY, KEY_GROUP, VALUE = "key", "key_group", "value"
LAST_ACCESS = "last_access_ms"
WINDOW_START, WINDOW_END = "window_start", "window_end"
TIME_DOMAIN, TIMESTAMP = "time_domain", "timestamp"
COLUMNS_KIND = "columns"

_KEY_PREFIX, VALUE_PREFIX = "key.", "value."

Arrange = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class StateRows:
    """Reads the rows of a keyed state, range by range."""

    store: ObjectStore = field(repr=False)
    runs: StoredRuns
    new_arrange: Callable[[], Arrange] = field(repr=False)
    """Makes the function that converts stored batches to a reader's batches; one for each reader."""

    @property
    def described(self) -> str:
        """Return the state as messages call it."""
        return self.runs.described

    def reader(self, key_groups: range | None = None) -> pa.RecordBatchReader:
        """Return a reader of the rows. It holds one stored range in memory at a time (16 MB and more before
        compression), and of an incremental checkpoint the keys that later runs override.

        Args:
            key_groups: Only those; None: all.

        Raises:
            StateError: A key is of another type than those before it.
            DamagedRange: Stored bytes are not what was written. Reading raises it, too.
        """
        batches = self.batches(key_groups)
        first = list(islice(batches, 1))
        schema = first[0].schema if first else self.new_arrange()(self._nothing()).schema
        return pa.RecordBatchReader.from_batches(schema, chain(first, batches))

    def batches(self, key_groups: range | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as `reader` does."""
        arrange = self.new_arrange()
        for batch in self._stored(key_groups):
            if batch.num_rows:
                yield arrange(batch)

    def table(self, key_groups: range | None = None) -> pa.Table:
        """Return all rows as one table."""
        return self.reader(key_groups).read_all()

    def count(self) -> int:
        """Return the number of stored entries, which metadata know unless some override others."""
        if any(of_subtask.is_chain for of_subtask in self.runs.subtasks):
            return sum(batch.num_rows for batch in self.runs.batches(self.store))
        return sum(run.entries for of_subtask in self.runs.subtasks for run in of_subtask.runs)

    def split(self, count: int) -> list[StateRows]:
        """Return about `count` disjoint shares of the rows, of similar size, to be read in parallel."""
        return [replace(self, runs=runs) for runs in self.runs.split(count)]

    def entries(self, key_groups: range | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) as Python objects. An object whose class cannot be imported is a `MissingClass`.

        Raises:
            StateError: The state was declared by a type that this version does not know.
        """
        declared = self.runs.schema
        if declared.kind == COLUMNS_KIND:
            for batch in self.batches(key_groups):
                yield from zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist())
            return
        type = parse_type(declared.codec)
        if type is None:
            raise StateError(f"{self.described} is of {declared.codec}, a type that this version does not know")
        type = readable(type)
        decoder = KeyDecoder()
        for batch in self._stored(key_groups):
            yield from zip(decoder.decode(batch.column(KEY_COLUMN).to_pylist()), type.decode(batch))

    def _stored(self, key_groups: range | None) -> Iterator[pa.RecordBatch]:
        for batch in self.runs.batches(self.store, key_groups):
            yield in_schema(batch, self.runs.schema, self.described)

    def _nothing(self) -> pa.RecordBatch:
        """Return a batch without rows, as it would be stored."""
        declared = self.runs.schema
        if declared.kind == COLUMNS_KIND:
            fields = list(parse_columns(declared.codec))
        else:
            type = parse_type(declared.codec)
            fields = [*([] if type is None else type.schema), pa.field(KEY_COLUMN, pa.binary())]
        fields.append(pa.field(KEY_GROUP_COLUMN, pa.uint16()))
        return _empty(pa.schema(fields))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


# ---- from what is stored to rows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyAndValue:
    """Makes rows (key, key_group, value) of stored batches; of state per window, (key, key_group, window_start,
    value). With `shows_pickles` the text of pickled objects is in place of their pickles. State with a time to live has
    the column last_access_ms, too: a time, or one for each element of a list or entry of a map.
    """

    keys: ShownKeys
    shows_pickles: bool

    def __call__(self) -> Arrange:
        schema = self.keys.runs.schema
        if schema.kind == COLUMNS_KIND:
            return _of_columns
        keys = self.keys.reader()
        type = parse_type(schema.codec)
        of_window = schema.name.startswith(OF_WINDOW)

        def arrange(batch: pa.RecordBatch) -> pa.RecordBatch:
            stored = batch.column(KEY_COLUMN)
            further: dict[str, pa.Array] = {}
            if of_window:
                stored, further[WINDOW_START] = window_keys(stored)
            columns = {KEY: keys.decoded(stored), KEY_GROUP: _group_column(batch), **further}
            columns[VALUE] = self.value_of(batch, type, self.shows_pickles)
            if schema.expires:
                columns[LAST_ACCESS] = _last_access(batch, schema.kind)
            return pa.RecordBatch.from_pydict(columns)

        return arrange

    @staticmethod
    def value_of(batch: pa.RecordBatch, type: ColumnType | None, shows_pickles: bool) -> pa.Array:
        """Return the values of a stored batch as one column."""
        names = [name for name in batch.schema.names if name not in RESERVED_COLUMNS]
        columns = [batch.column(name) for name in names]
        is_struct = isinstance(type, (TupleType, RowType)) or (type is None and len(columns) != 1)
        value = pa.StructArray.from_arrays(columns, names=names) if is_struct else columns[0]
        return as_text(value, type) if shows_pickles and type is not None and has_pickles(type) else value


@dataclass(frozen=True)
class Timers:
    """Makes rows (key, key_group, time_domain, timestamp) of stored timers."""

    keys: ShownKeys
    time_domain: str

    def __call__(self) -> Arrange:
        keys = self.keys.reader()

        def arrange(batch: pa.RecordBatch) -> pa.RecordBatch:
            rows, times, _ = _exploded(batch.column(0))
            columns = {
                KEY: keys.decoded(batch.column(KEY_COLUMN)).take(rows),
                KEY_GROUP: _group_column(batch).take(rows),
            }
            domain = pa.repeat(pa.scalar(self.time_domain), len(times))
            return pa.RecordBatch.from_pydict({**columns, TIME_DOMAIN: domain, TIMESTAMP: times})

        return arrange


@dataclass(frozen=True)
class Windows:
    """Makes rows (key, key_group, window_start, window_end, value) of the contents of windows. `length_ms`: the length
    of each window; None: they differ, and no `window_end` is known."""

    keys: ShownKeys
    length_ms: int | None
    shows_pickles: bool

    def __call__(self) -> Arrange:
        if self.keys.runs.schema.kind == COLUMNS_KIND:
            return self._arrange_columns
        keys = self.keys.reader()
        type = parse_type(self.keys.runs.schema.codec)

        def arrange(batch: pa.RecordBatch) -> pa.RecordBatch:
            rows, starts, contents = _exploded(KeyAndValue.value_of(batch, type, self.shows_pickles))
            columns = {
                KEY: keys.decoded(batch.column(KEY_COLUMN)).take(rows),
                KEY_GROUP: _group_column(batch).take(rows),
            }
            return pa.RecordBatch.from_pydict({**columns, **self._bounds(starts), VALUE: contents})

        return arrange

    def _bounds(self, starts: pa.Array) -> dict[str, pa.Array]:
        if pa.types.is_struct(starts.type):  # windows that a trigger fires, and that differ in length
            bounds: list[pa.Array] = starts.flatten()
            return {WINDOW_START: bounds[0], WINDOW_END: bounds[1]}
        if self.length_ms is None:
            return {WINDOW_START: starts, WINDOW_END: pa.nulls(len(starts), pa.int64())}
        return {WINDOW_START: starts, WINDOW_END: pa.array(starts.to_numpy() + self.length_ms)}

    def _arrange_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [n for n in batch.schema.names if n.startswith(_KEY_PREFIX) and n != _KEY_PREFIX + WINDOW_START]
        starts = batch.column(_KEY_PREFIX + WINDOW_START)
        columns = {KEY: _struct(batch, names, _KEY_PREFIX), KEY_GROUP: _group_column(batch), **self._bounds(starts)}
        return pa.RecordBatch.from_pydict({**columns, VALUE: _values_of_columns(batch)})


def _of_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = [name for name in batch.schema.names if name.startswith(_KEY_PREFIX)]
    key = _struct(batch, names, _KEY_PREFIX)
    return pa.RecordBatch.from_pydict({KEY: key, KEY_GROUP: _group_column(batch), VALUE: _values_of_columns(batch)})


def _values_of_columns(batch: pa.RecordBatch) -> pa.Array:
    names = [name for name in batch.schema.names if name.startswith(VALUE_PREFIX)]
    columns = [batch.column(name) for name in names]
    return pa.StructArray.from_arrays(columns, names=[name.removeprefix(VALUE_PREFIX) for name in names])


def _struct(batch: pa.RecordBatch, names: list[str], prefix: str) -> pa.Array:
    """Return the columns of a key as one; a key of one column is that column."""
    columns = [batch.column(name) for name in names]
    if len(columns) == 1:
        return columns[0]
    return pa.StructArray.from_arrays(columns, names=[name.removeprefix(prefix) for name in names])


def _last_access(batch: pa.RecordBatch, kind: str) -> pa.Array:
    """Return the times of the last use. What was restored and not asked for since may have none."""
    if LAST_ACCESS_COLUMN in batch.schema.names:
        return batch.column(LAST_ACCESS_COLUMN)
    return pa.nulls(batch.num_rows, pa.list_(pa.int64()) if kind in ("list", "map") else pa.int64())


def _group_column(batch: pa.RecordBatch) -> pa.Array:
    return batch.column(KEY_GROUP_COLUMN).cast(pa.int32())


def _exploded(maps: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return (row, key, item) of each entry of a map column."""
    offsets = maps.offsets.to_numpy()
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return pa.array(rows), maps.keys.slice(start, count), maps.items.slice(start, count)
