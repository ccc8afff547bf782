"""Compares the state of two checkpoints: operators, states, and the entries of each state, key by key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.protocol.values.key_encoding import decode
from penstock.protocol.values.metadata import StateSchema
from penstock.state.reading.checkpoint import Checkpoint, OperatorOfCheckpoint
from penstock.state.reading.pickles import readable, text_of
from penstock.state.reading.runs import StoredRuns
from penstock.state.reading.several_types import in_schema
from penstock.state.reading.sizes import equal_values
from penstock.state.reading.state_rows import COLUMNS_KIND, VALUE_PREFIX
from penstock.storage.store import ObjectStore

COMPARED_BYTES_MAX = 256 * 1024 * 1024
"""The most bytes of a state that are compared at once, which decides the number of key groups."""

_KEY_PREFIX = "key."


class Example(NamedTuple):
    """Shows a key that differs, and its value in each checkpoint, as text; None: it has none there."""

    key: str
    before: str | None
    after: str | None


@dataclass
class StateDifference:
    """Counts keys. `declared`: how the state was declared in each, if that differs; then values are not compared."""

    operator: str
    name: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    examples: dict[str, list[Example]] = field(default_factory=dict)
    declared: tuple[str, str] | None = None

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed or self.declared)

    def note(self, kind: str, found: list[Example], most: int) -> None:
        """Add examples of keys that were added, removed or changed."""
        examples = self.examples.setdefault(kind, [])
        examples += found[: most - len(examples)]


@dataclass
class Difference:
    """Holds the differences between two checkpoints. `added` has the entries of the second one only."""

    operators_added: list[str] = field(default_factory=list)
    operators_removed: list[str] = field(default_factory=list)
    states_added: list[tuple[str, str]] = field(default_factory=list)
    states_removed: list[tuple[str, str]] = field(default_factory=list)
    operator_states_changed: list[tuple[str, str]] = field(default_factory=list)
    states: list[StateDifference] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        names = (self.operators_added, self.operators_removed, self.states_added, self.states_removed)
        return not any(names) and not self.operator_states_changed and all(state.is_none for state in self.states)


def compared(before: Checkpoint, after: Checkpoint, examples: int = 5) -> Difference:
    """Compare two checkpoints. Raises `DamagedRange`, `StoreError`."""
    found = Difference()
    old, new = ({o.id: o for o in c.operators} for c in (before, after))
    found.operators_removed = [o.label for id, o in old.items() if id not in new]
    found.operators_added = [o.label for id, o in new.items() if id not in old]
    for id, operator in old.items():
        if id in new:
            _compare_operator(found, before, after, operator, new[id], examples)
    return found


def _compare_operator(
    found: Difference,
    before: Checkpoint,
    after: Checkpoint,
    old: OperatorOfCheckpoint,
    new: OperatorOfCheckpoint,
    examples: int,
) -> None:
    old_schemas, new_schemas = before.keyed_schemas(old), after.keyed_schemas(new)
    found.states_removed += [(old.label, name) for name in old_schemas if name not in new_schemas]
    found.states_added += [(old.label, name) for name in new_schemas if name not in old_schemas]
    for name, schema in old_schemas.items():
        if name in new_schemas:
            difference = StateDifference(new.label, name)
            found.states.append(difference)
            runs = before.runs(old, schema), after.runs(new, new_schemas[name])
            if _declared(schema) != _declared(new_schemas[name]):
                difference.declared = _declared(schema), _declared(new_schemas[name])
            stores = before.files.store, after.files.store
            same_groups = old.vertex.max_parallelism == new.vertex.max_parallelism
            groups = old.vertex.max_parallelism if same_groups else None
            _compare_state(difference, runs, stores, groups, examples)
    parts = [checkpoint.operator_state_items(operator) for checkpoint, operator in ((before, old), (after, new))]
    found.states_removed += [(old.label, name) for name in parts[0] if name not in parts[1]]
    found.states_added += [(old.label, name) for name in parts[1] if name not in parts[0]]
    changed = [name for name in parts[0] if name in parts[1] and parts[0][name] != parts[1][name]]
    found.operator_states_changed += [(old.label, name) for name in changed]


def _declared(schema: StateSchema) -> str:
    return f"{schema.kind} state of {schema.codec}"


def _compare_state(
    difference: StateDifference,
    runs: tuple[StoredRuns, StoredRuns],
    stores: tuple[ObjectStore, ObjectStore],
    key_groups: int | None,
    examples: int,
) -> None:
    parts = -(-max(r.length_bytes for r in runs) // COMPARED_BYTES_MAX)
    wanted: list[range | None] = [None]
    if key_groups is not None and parts > 1:
        size = -(-key_groups // min(parts, key_groups))
        wanted = [range(first, min(first + size, key_groups)) for first in range(0, key_groups, size)]
    for groups in wanted:
        old, new = (_table(r, store, groups) for r, store in zip(runs, stores))
        _Tables(old, new, runs[0].schema, runs[1].schema).compare(difference, examples)


def _table(runs: StoredRuns, store: ObjectStore, groups: range | None) -> pa.RecordBatch | None:
    stored = (in_schema(batch, runs.schema, runs.described) for batch in runs.batches(store, groups))
    batches = [batch.replace_schema_metadata(None) for batch in stored if batch.num_rows]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if batches else None


@dataclass(frozen=True)
class _Tables:
    """Holds the entries of both checkpoints; None: there are none."""

    old: pa.RecordBatch | None
    new: pa.RecordBatch | None
    old_schema: StateSchema
    new_schema: StateSchema

    def compare(self, difference: StateDifference, examples: int) -> None:
        """Add the differences to `difference`."""
        old, new = self.old, self.new
        nothing: npt.NDArray[np.int64] = np.empty(0, np.int64)
        if old is None or new is None:
            removed, added = (nothing if batch is None else np.arange(batch.num_rows) for batch in (old, new))
            self._note(difference, removed, added, (nothing, nothing), examples)
            return
        names = [n for n in old.schema.names if n == KEY_COLUMN or n.startswith(_KEY_PREFIX)]
        keyed = [
            pa.table({**{n: batch.column(n) for n in names}, row: np.arange(batch.num_rows)})
            for row, batch in (("old", old), ("new", new))
        ]
        joined = keyed[0].join(keyed[1], names, join_type="full outer")
        rows = {name: joined.column(name) for name in ("old", "new")}
        gone, came = (np.asarray(rows[n].is_null()) for n in ("new", "old"))
        old_rows, new_rows = (rows[n].filter(pa.array(~gone & ~came)).combine_chunks() for n in ("old", "new"))
        changed = np.zeros(len(old_rows), np.bool_)
        if difference.declared is None:
            for name in old.schema.names:
                if name not in names and name != KEY_GROUP_COLUMN and name in new.schema.names:
                    mine, theirs = old.column(name).take(old_rows), new.column(name).take(new_rows)
                    changed |= ~equal_values(mine, theirs)
        removed, added = (np.asarray(rows[n].filter(pa.array(m))) for n, m in (("old", gone), ("new", came)))
        difference.same += int((~changed).sum())
        self._note(difference, removed, added, (np.asarray(old_rows)[changed], np.asarray(new_rows)[changed]), examples)

    def _note(
        self,
        difference: StateDifference,
        removed: npt.NDArray[np.int64],
        added: npt.NDArray[np.int64],
        changed: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        examples: int,
    ) -> None:
        difference.removed += len(removed)
        difference.added += len(added)
        difference.changed += len(changed[0])
        before = _shown(self.old, self.old_schema, removed[:examples])
        after = _shown(self.new, self.new_schema, added[:examples])
        difference.note("removed", [Example(key, value, None) for key, value in before], examples)
        difference.note("added", [Example(key, None, value) for key, value in after], examples)
        before = _shown(self.old, self.old_schema, changed[0][:examples])
        after = _shown(self.new, self.new_schema, changed[1][:examples])
        both = [Example(key, old, new) for (key, old), (_, new) in zip(before, after)]
        difference.note("changed", both, examples)


def _shown(batch: pa.RecordBatch | None, schema: StateSchema, rows: npt.NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return keys and values as texts."""
    if batch is None or not len(rows):
        return []
    taken = batch.take(pa.array(rows, pa.int64()))
    if KEY_COLUMN in batch.schema.names:
        keys = [repr(decode(key)) for key in taken.column(KEY_COLUMN).to_pylist()]
    else:
        columns = [taken.column(n).to_pylist() for n in batch.schema.names if n.startswith(_KEY_PREFIX)]
        keys = [repr(key[0] if len(key) == 1 else key) for key in zip(*columns)]
    return list(zip(keys, _value_texts(taken, schema)))


def _value_texts(batch: pa.RecordBatch, schema: StateSchema) -> list[str]:
    type = parse_type(schema.codec)
    if schema.kind != COLUMNS_KIND and type is not None:
        return [text_of(value) for value in readable(type).decode(batch)]
    names = [name for name in batch.schema.names if name.startswith(VALUE_PREFIX)]
    rows = batch.select(names).rename_columns([name.removeprefix(VALUE_PREFIX) for name in names]).to_pylist()
    return [", ".join(f"{name}={value!r}" for name, value in row.items()) for row in rows]
