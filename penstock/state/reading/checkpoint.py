"""Opens checkpoints and savepoints: what operators and states there are, and their rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.program.operator_uid import uid_of
from penstock.common.row_types.type_texts import parse_type
from penstock.common.settings.configuration_sources import load_configuration
from penstock.common.typeinfo import TypeInformation
from penstock.protocol.values.metadata import Metadata, OperatorPart, StateSchema, VertexShape
from penstock.state.backend import StateError
from penstock.state.operator_state import BROADCAST, SPLIT, UNION, batches_of
from penstock.state.reading.checkpoint_location import CheckpointFiles, find_checkpoint
from penstock.state.reading.declared_types import has_pickles
from penstock.state.reading.key_forms import KeyForm
from penstock.state.reading.pickles import as_text
from penstock.state.reading.runs import StoredRuns, runs_of, snapshots_of
from penstock.state.reading.several_types import common_schema
from penstock.state.reading.shown_keys import ShownKeys, key_type_of
from penstock.state.reading.state_rows import KEY, VALUE, KeyAndValue, StateRows, Timers, Windows
from penstock.storage.store_settings import StoreSettings

EVENT_TIMERS, PROCESSING_TIMERS = "_event_time_timers", "_processing_time_timers"
WINDOW_CONTENTS, AGGREGATES = "_window_contents", "_aggregates"
SUBTASK = "subtask"

Pickles = Literal["text", "bytes"]

_LISTED_MAX = 40


@dataclass(frozen=True)
class OperatorOfCheckpoint:
    """Describes an operator. `id`: 32 hex digits; `uid`: what the program calls it, None if it says nothing."""

    id: str
    uid: str | None
    name: str
    vertex: VertexShape

    @property
    def label(self) -> str:
        """Return the operator's name in messages and tables."""
        return self.uid or self.name


@dataclass(frozen=True)
class StateOfCheckpoint:
    """Describes a state. `kind`: value, list, map, reducing, aggregating, columns (built-in aggregates), or of operator
    state split, union and broadcast. `entries` counts stored entries, overridden ones too. `expires`: it has a time to
    live.
    """

    operator: OperatorOfCheckpoint
    name: str
    kind: str
    type: str
    entries: int
    stored_bytes: int
    expires: bool = False


class Checkpoint:
    """Reads one checkpoint or savepoint."""

    def __init__(self, files: CheckpointFiles) -> None:
        self.files = files
        self.metadata: Metadata = files.metadata
        self.path = files.path
        self.operators = [
            OperatorOfCheckpoint(id, _user_uid(vertex, place), name, vertex)
            for vertex in self.metadata.vertices
            for place, (id, name) in enumerate(zip(vertex.operators, vertex.operator_names))
        ]

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}: {self.metadata.checkpoint_id} of job {self.metadata.job_name!r})"

    # ---- what there is ------------------------------------------------------------------------------------------

    def operator(self, uid: str) -> OperatorOfCheckpoint:
        """Return an operator by its uid, its id (32 hex digits) or its name. Raises `StateError`, which lists those
        that there are.
        """
        found = [o for o in self.operators if o.uid == uid or o.id == uid or uid_of(uid) == o.id]
        found = found or [o for o in self.operators if o.name == uid]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(o.uid or o.id for o in found)
            raise StateError(f"{self.path} has several operators with the name '{uid}': name one by its uid: {ids}")
        known = _listed(f"'{o.uid}'" if o.uid else f"'{o.name}' (id {o.id})" for o in self.operators)
        raise StateError(f"{self.path} has no operator with the uid '{uid}'; there are {known}")

    def keyed_schemas(self, operator: OperatorOfCheckpoint) -> dict[str, StateSchema]:
        """Return the declarations of the operator's keyed states, by name."""
        found: dict[str, list[StateSchema]] = {}
        for snapshot in snapshots_of(self.metadata, operator.vertex):
            for schema in snapshot.schemas:
                if schema.operator == operator.id:
                    found.setdefault(schema.name, []).append(schema)
        return {name: common_schema(schemas) for name, schemas in found.items()}

    def states(self) -> list[StateOfCheckpoint]:
        """Return all states of users' functions and of our operators, keyed ones first for each operator."""
        found = []
        for operator in self.operators:
            for schema in self.keyed_schemas(operator).values():
                ranges = [run for s in self.runs(operator, schema).subtasks for run in s.runs]
                entries, stored = sum(r.entries for r in ranges), sum(r.length_bytes for r in ranges)
                told = schema.name, schema.kind, schema.codec, entries, stored, schema.expires
                found.append(StateOfCheckpoint(operator, *told))
            found += self._operator_states(operator)
        return found

    def _operator_states(self, operator: OperatorOfCheckpoint) -> Iterator[StateOfCheckpoint]:
        for (name, kind, codec), parts in self._parts(operator).items():
            if not kind:
                continue
            batches = [b for _, part in parts[: 1 if kind == BROADCAST else None] for b in batches_of(part.items)]
            entries = sum(len(b.column(0).keys) if kind == BROADCAST else b.num_rows for b in batches)
            stored = sum(len(item) for _, part in parts for item in part.items)
            yield StateOfCheckpoint(operator, name, kind, codec, entries, stored)

    def _parts(self, operator: OperatorOfCheckpoint) -> dict[tuple[str, str, str], list[tuple[int, OperatorPart]]]:
        """Return the operator's parts by (name, kind, codec), with their subtasks."""
        found: dict[tuple[str, str, str], list[tuple[int, OperatorPart]]] = {}
        for snapshot in snapshots_of(self.metadata, operator.vertex):
            for part in snapshot.parts:
                if part.operator == operator.id:
                    found.setdefault((part.name, part.kind, part.codec), []).append((snapshot.subtask, part))
        return found

    # ---- keyed state --------------------------------------------------------------------------------------------

    def keyed_state(
        self, uid: str, name: str, key_type: TypeInformation | None = None, pickles: Pickles = "text"
    ) -> StateRows:
        """Return the rows of a keyed state: columns `key`, `key_group` and `value`. State that a function keeps per
        window has the name `_window/<name>`, and `window_start` as one more column; state with a time to live has
        `last_access_ms`.

        Args:
            uid: The operator's uid; its id or its name will do.
            name: The state's name, as its descriptor says.
            key_type: The type of the keys. Not given: what the program declared, else that of the first keys.
                `Types.PICKLED_BYTE_ARRAY()` shows keys of any kinds, as pickles.
            pickles: How values without a declared type are shown: as the text of the object, or as the pickle.

        Raises:
            StateError: There is no such operator or state. The message lists those that there are.
        """
        operator = self.operator(uid)
        runs = self.runs(operator, self._schema(operator, name))
        return self._rows(runs, KeyAndValue(self._keys(operator, runs, key_type), _shown(pickles)))

    def timers(self, uid: str, key_type: TypeInformation | None = None) -> list[StateRows]:
        """Return the rows of an operator's timers, of event time and of processing time: columns `key`, `key_group`,
        `time_domain` and `timestamp` (ms). [] if it has none. Arguments and errors are those of `keyed_state`.
        """
        operator = self.operator(uid)
        schemas = self.keyed_schemas(operator)
        found = []
        for name, domain in ((EVENT_TIMERS, "EVENT_TIME"), (PROCESSING_TIMERS, "PROCESSING_TIME")):
            if name in schemas:
                runs = self.runs(operator, schemas[name])
                found.append(self._rows(runs, Timers(self._keys(operator, runs, key_type), domain)))
        return found

    def windows(self, uid: str, key_type: TypeInformation | None = None, pickles: Pickles = "text") -> StateRows:
        """Return the rows of an operator's windows that have not ended: columns `key`, `key_group`, `window_start` and
        `window_end` (ms; no end is known of windows that differ in length), and `value`, what the window keeps.
        Arguments and errors are those of `keyed_state`.
        """
        operator = self.operator(uid)
        schemas = self.keyed_schemas(operator)
        shape = operator.vertex.windows
        name = next((n for n in (WINDOW_CONTENTS, AGGREGATES) if n in schemas), None)
        if shape is None or name is None:
            raise StateError(f"operator '{operator.label}' has no windows in {self.path}")
        runs = self.runs(operator, schemas[name])
        keys = self._keys(operator, runs, key_type)
        return self._rows(runs, Windows(keys, shape.length_ms, _shown(pickles)))

    def runs(self, operator: OperatorOfCheckpoint, schema: StateSchema) -> StoredRuns:
        """Return the stored runs of a keyed state."""
        return runs_of(self.metadata, operator.vertex, schema)

    def _rows(self, runs: StoredRuns, new_arrange: Callable[[], Any]) -> StateRows:
        return StateRows(self.files.store, runs, new_arrange)

    def _schema(self, operator: OperatorOfCheckpoint, name: str) -> StateSchema:
        schemas = self.keyed_schemas(operator)
        if name in schemas:
            return schemas[name]
        others = [f"'{n}' ({kind}: use {_METHOD_OF[kind]})" for n, kind, _ in self._parts(operator) if kind]
        known = _listed([*(f"'{known}'" for known in schemas), *others])
        raise StateError(f"operator '{operator.label}' has no keyed state '{name}' in {self.path}; there are {known}")

    def key_form(self, uid: str, name: str, key_type: TypeInformation | None = None) -> KeyForm:
        """Return the form in which `keyed_state` shows the keys. Raises as `keyed_state`, and `DamagedRange`."""
        operator = self.operator(uid)
        return self._keys(operator, self.runs(operator, self._schema(operator, name)), key_type).form

    def _keys(self, operator: OperatorOfCheckpoint, runs: StoredRuns, given: TypeInformation | None) -> ShownKeys:
        return ShownKeys(self.files.store, runs, key_type_of(operator.vertex, given))

    # ---- operator state -----------------------------------------------------------------------------------------

    def operator_state(self, uid: str, name: str, pickles: Pickles = "text") -> pa.Table:
        """Return a list or union list of an operator: columns `subtask` and `value`. Raises as `keyed_state`."""
        operator = self.operator(uid)
        parts, codec = self._of_one_type(operator, name, (SPLIT, UNION))
        type = parse_type(codec)
        tables = []
        for subtask, part in parts:
            for batch in batches_of(part.items):
                numbers = pa.array([subtask] * batch.num_rows, pa.int32())
                value = KeyAndValue.value_of(batch, type, _shown(pickles))
                tables.append(pa.table({SUBTASK: numbers, VALUE: value}))
        empty = pa.table({SUBTASK: pa.array([], pa.int32()), VALUE: pa.array([], pa.null())})
        return pa.concat_tables(tables) if tables else empty

    def broadcast_state(self, uid: str, name: str, pickles: Pickles = "text") -> pa.Table:
        """Return the broadcast state of an operator, which is the same in all subtasks: columns `key` and `value`.
        Raises as `keyed_state`.
        """
        operator = self.operator(uid)
        parts, codec = self._named_parts(operator, name, (BROADCAST,))[0]
        type = parse_type(codec)
        tables = []
        for batch in batches_of(parts[0][1].items):
            column = batch.column(0)
            if _shown(pickles) and type is not None and has_pickles(type):
                column = as_text(column, type)
            tables.append(pa.table({KEY: column.keys, VALUE: column.items}))
        return pa.concat_tables(tables) if tables else pa.table({KEY: [], VALUE: []})

    def operator_parts(
        self, operator: OperatorOfCheckpoint, name: str, kinds: tuple[str, ...], first_only: bool
    ) -> list[OperatorPart]:
        """Return operator state of these kinds, of all subtasks, or of the first one only. Raises `StateError` if there
        is none of the name.
        """
        parts = [part for found, _ in self._named_parts(operator, name, kinds) for _, part in found]
        return parts[:1] if first_only else parts

    def operator_state_items(self, operator: OperatorOfCheckpoint) -> dict[str, list[list[bytes]]]:
        """Return the encoded items of an operator's lists and broadcast state, by name and subtask."""
        return {
            name: [part.items for _, part in found] for (name, kind, _), found in self._parts(operator).items() if kind
        }

    def _of_one_type(
        self, operator: OperatorOfCheckpoint, name: str, kinds: tuple[str, ...]
    ) -> tuple[list[tuple[int, OperatorPart]], str]:
        found = self._named_parts(operator, name, kinds)
        if len(found) > 1:
            told = "; ".join(f"{codec} in subtask {_listed([str(s) for s, _ in parts])}" for parts, codec in found)
            raise StateError(
                f"operator state '{name}' of operator '{operator.label}' is stored in several types, {told}: read it "
                "in the type of your program, with SavepointReader.read_list_state or read_union_state"
            )
        return found[0]

    def _named_parts(
        self, operator: OperatorOfCheckpoint, name: str, kinds: tuple[str, ...]
    ) -> list[tuple[list[tuple[int, OperatorPart]], str]]:
        """Return the parts of one name, with their subtasks, by their types: more than one if some subtasks have not
        asked for the state since the program changed its type."""
        parts = self._parts(operator)
        found = [(of_type, codec) for (known, kind, codec), of_type in parts.items() if known == name and kind in kinds]
        if found:
            return found
        what = "broadcast state" if BROADCAST in kinds else "operator state"
        others = [f"'{n}' ({kind}: use {_METHOD_OF[kind]})" for n, kind, _ in parts if kind]
        keyed = [f"'{known}' (keyed: use keyed_state)" for known in self.keyed_schemas(operator)]
        raise StateError(
            f"operator '{operator.label}' has no {what} '{name}' in {self.path}; there are {_listed([*others, *keyed])}"
        )


_METHOD_OF = {SPLIT: "operator_state", UNION: "operator_state", BROADCAST: "broadcast_state"}


def read_checkpoint(path: str, configuration: Configuration | None = None) -> Checkpoint:
    """Open a checkpoint or savepoint. See `penstock.state.read_checkpoint`."""
    settings = StoreSettings.of(load_configuration() if configuration is None else configuration)
    return Checkpoint(find_checkpoint(path, settings))


def _user_uid(vertex: VertexShape, place: int) -> str | None:
    return vertex.user_uids[place] or None if place < len(vertex.user_uids) else None


def _shown(pickles: str) -> bool:
    if pickles not in ("text", "bytes"):
        raise StateError(f"pickles are shown as 'text' or as 'bytes', not {pickles!r}")
    return pickles == "text"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _LISTED_MAX} more" if len(found) > _LISTED_MAX else ""
    return ", ".join(found[:_LISTED_MAX]) + more if found else "none"
