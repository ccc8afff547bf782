"""Keeps restored state until operators ask for it; until then checkpoints write it again as it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Iterator, Mapping, Protocol, Sequence

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, RestoringSubtask, StateError, StoredState
from penstock.state.codecs import RestoredRun, read_stream, write_stream
from penstock.state.first_failure import FirstFailure
from penstock.state.overriding import consolidated
from penstock.state.stored_keys import OF_WINDOW, check_keys

StateName = tuple[str, str]
"""(operator's uid, state's name)"""


class RestoringBackend:
    """Implements the restore of a state backend. `operator_names` (uid -> name) are for messages."""

    def __init__(self, operator_names: Mapping[str, str] | None) -> None:
        self._operator_names = operator_names or {}
        self._schemas: dict[StateName, StateSchema] = {}
        self._runs: dict[StateName, list[RestoredRun]] = {}
        self._taken: set[StateName] = set()
        self._user_uids: dict[str, str] = {}
        self._key_types: dict[str, str] = {}
        self._failure = FirstFailure()
        """Holds what has failed while the user's code asked for a state. No snapshot is taken after it."""

    def check_room(self, stored_bytes: int) -> None:
        """Do nothing: nobody knows what fits into memory."""

    def restore_schema(self, schema: StateSchema, user_uid: str = "", key_type: str = "") -> None:
        """Record a state's declaration. There may be no entries of it. `user_uid`: what the program calls its operator,
        for messages; `key_type`: the type of its keys, as it is declared now.
        """
        self._schemas[schema.operator, schema.name] = schema
        if user_uid:
            self._user_uids[schema.operator] = user_uid
        self._key_types[schema.operator] = key_type

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        """Restore a range of a state, as `encode` has written it; entries outside of `key_groups` are left out. Raises
        `StateError` if the state has been asked for, or its keys are of another type than is declared now.
        """
        if (operator, name) in self._taken:
            raise StateError(f"{self._described((operator, name))} is restored after it was asked for")
        read = read_stream(data, key_groups)
        self._check_keys((operator, name), read)
        run = self._kept(read)
        kind, _, codec = run.declared.partition(" ")
        self._schemas.setdefault((operator, name), StateSchema(operator, name, kind, codec))
        self._runs.setdefault((operator, name), []).append(run)

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        """Return nothing: the backend has no files of its own."""
        return frozenset()

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        """Do nothing: every checkpoint writes everything, whatever is stored already."""

    def metrics(self) -> dict[str, int]:
        """Return no figures: Python's objects and arrays are not measured."""
        return {}

    def _check_keys(self, name: StateName, run: RestoredRun) -> None:
        """Raise `StateError` if the keys of a run are of another type than is declared now. Those of the state
        of windows are keys and windows.
        """
        operator, of_state = name
        if not of_state.startswith(OF_WINDOW):
            check_keys(run.batches, self._key_types.get(operator, ""), self._described_with_uid(name))

    def _restore_first(self, name: StateName, data: Iterable[bytes], key_groups: range) -> None:
        """Restore runs that come before those that were restored already."""
        later = self._runs.pop(name, [])
        for run in data:
            RestoringBackend.restore(self, *name, run, key_groups)
        self._runs.setdefault(name, []).extend(later)

    def _before_fitting(self, declared: StateSchema) -> None:
        """Prepare for a state to be asked for, as it is declared now."""

    def _kept(self, run: RestoredRun) -> RestoredRun:
        """Return a run as it is kept until its state is asked for."""
        return run

    def _restored_schema(self, name: StateName) -> StateSchema | None:
        """Return the declaration of a restored state that no descriptor has claimed yet."""
        return self._schemas.get(name)

    def _take_restored(self, name: StateName) -> list[RestoredRun]:
        """Return the runs of a restored state; from now on the backend writes it."""
        self._taken.add(name)
        self._schemas.pop(name, None)
        return self._runs.pop(name, [])

    def _fitted(self, name: StateName, evolution: Callable[[str, str], Conversion | None]) -> list[RestoredRun]:
        """Take the runs of a restored state as they are declared now. `evolution`: how runs of a kind and a codec are
        converted (None: they are as declared); raises `StateSchemaError`.
        """
        found: dict[str, Conversion | None] = {}
        schema = self._schemas.get(name)
        texts = set() if schema is None else {f"{schema.kind} {schema.codec}"}
        for text in texts | {run.declared for run in self._runs.get(name, [])}:
            kind, _, codec = text.partition(" ")
            found[text] = evolution(kind, codec)
        runs = [_converted(run, found[run.declared]) for run in self._take_restored(name)]
        if any(found.values()):
            self._store_whole(name)
        return runs

    def _store_whole(self, name: StateName) -> None:
        """Let the next checkpoint store a state whole, because what earlier ones have stored is not as it is now."""

    def _untouched(self) -> UntouchedState:
        # 8.2: state that nobody has asked for is stored again, with our own key groups.
        return UntouchedState(list(self._schemas.values()), dict(self._runs))

    def _described(self, name: StateName) -> str:
        operator, state = name
        return f"state '{state}' of operator '{self._operator_names.get(operator, operator)}'"

    def _described_with_uid(self, name: StateName) -> str:
        uid = self._user_uids.get(name[0])
        return self._described(name) + (f" (uid '{uid}')" if uid else "")


class Conversion(Protocol):
    """Converts stored batches to what is declared now."""

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def converted_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of deleted keys."""


class ConvertedBatches(Sequence[pa.RecordBatch]):
    """Converts batches lazily: they take no memory before they are read."""

    def __init__(self, batches: Sequence[pa.RecordBatch], convert: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._batches = batches
        self._convert = convert

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        return self._convert(self._batches[index])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(self._convert, self._batches)


def _converted(run: RestoredRun, conversion: Conversion | None) -> RestoredRun:
    if conversion is None:
        return run
    convert = conversion.converted_keys if run.deletes else conversion.converted
    return replace(run, batches=ConvertedBatches(run.batches, convert))


@dataclass(frozen=True)
class UntouchedState:
    """Holds, at a barrier, what was restored and has not been asked for."""

    schemas: list[StateSchema]
    runs: dict[StateName, list[RestoredRun]]

    def encode(self) -> Iterator[EncodedState]:
        """Yield the entries that count: runs in one segment never override each other."""
        for (operator, name), runs in self.runs.items():
            for run in consolidated(runs):
                if entries := sum(batch.num_rows for batch in run.batches):
                    yield EncodedState(operator, name, entries, [write_stream(run.schema, run.batches)])
