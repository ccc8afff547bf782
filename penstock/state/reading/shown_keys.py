"""Chooses the form in which a state's keys are shown: by the type that was given or declared, else
by the first keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import KEY_COLUMN, TypeInformation
from penstock.protocol.values.metadata import VertexShape
from penstock.state.backend import StateError
from penstock.state.reading.declared_types import has_pickles
from penstock.state.reading.key_forms import NOTHING, KeyForm, form_of_type
from penstock.state.reading.key_reader import KeyReader, form_of_stored, window_keys
from penstock.state.reading.runs import StoredRuns
from penstock.state.stored_keys import OF_WINDOW
from penstock.storage.store import ObjectStore

_LOOKED_AT_BYTES = 16 * 1024 * 1024
"""The number of bytes of ranges to read, at most, to choose a form for keys without a declared type."""


@dataclass(frozen=True)
class ShownKeys:
    """Holds the form of the keys of one state, the same for all of its shares. `declared`: their type; None: the first
    ranges that are stored decide.
    """

    store: ObjectStore = field(repr=False)
    runs: StoredRuns
    declared: ColumnType | None

    @cached_property
    def form(self) -> KeyForm:
        """Return the form. Raises `StateError` for keys that no column can show, `DamagedRange` and `StoreError`."""
        if self.declared is not None:
            return form_of_type(self.declared)
        found: list[pa.Array] = []
        size_bytes = 0
        for batch in self.runs.batches(self.store):
            if batch.num_rows and KEY_COLUMN in batch.schema.names:
                keys = batch.column(KEY_COLUMN)
                found.append(window_keys(keys)[0] if self.runs.schema.name.startswith(OF_WINDOW) else keys)
                size_bytes += batch.nbytes
            if size_bytes > _LOOKED_AT_BYTES:
                break
        return form_of_stored(pa.concat_arrays(found), self.runs.described) if found else NOTHING

    def reader(self) -> KeyReader:
        """Return a reader of the keys."""
        return KeyReader(self.runs.described, self.form)


def key_type_of(vertex: VertexShape, given: TypeInformation | None) -> ColumnType | None:
    """Return the type of a vertex's keys: the one that is given, else the one that the program has declared. None if
    keys may be of any type. Raises `StateError` for a given type that `Types` does not make.
    """
    if given is not None:
        if not isinstance(given, ColumnType):
            raise StateError(f"key_type is made by Types, e.g. Types.LONG(); got {given!r:.80}")
        return given
    declared = parse_type(vertex.key_type) if vertex.key_type else None
    return None if declared is None or has_pickles(declared) else declared
