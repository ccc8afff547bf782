"""Keeps restored state until operators ask for it; until then checkpoints write it again as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateError, StoredState
from penstock.state.codecs import RestoredRun, read_stream, write_stream
from penstock.state.overriding import consolidated

StateName = tuple[str, str]
"""(operator's uid, state's name)"""


class RestoringBackend:
    """Implements the part of a state backend that keeps what was restored. `operator_names` (uid -> name) are for
    messages.
    """

    def __init__(self, operator_names: Mapping[str, str] | None) -> None:
        self._operator_names = operator_names or {}
        self._schemas: dict[StateName, StateSchema] = {}
        self._runs: dict[StateName, list[RestoredRun]] = {}
        self._taken: set[StateName] = set()

    def restore_schema(self, schema: StateSchema) -> None:
        """Note how a state was declared, of which there may be no entries."""
        self._schemas[schema.operator, schema.name] = schema

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        """Restore a range of a state, as `encode` has written it; entries outside of `key_groups` are left out. Raises
        `StateError` if the state has been asked for.
        """
        if (operator, name) in self._taken:
            raise StateError(f"{self._described((operator, name))} is restored after it was asked for")
        run = self._kept(read_stream(data, key_groups))
        kind, _, codec = run.declared.partition(" ")
        self._schemas.setdefault((operator, name), StateSchema(operator, name, kind, codec))
        self._runs.setdefault((operator, name), []).append(run)

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        """Forget it: every checkpoint writes everything."""

    def _kept(self, run: RestoredRun) -> RestoredRun:
        """Return a run as it is kept until its state is asked for."""
        return run

    def _restored_schema(self, name: StateName) -> StateSchema | None:
        """Return how a state was declared that has not been taken yet."""
        return self._schemas.get(name)

    def _take_restored(self, name: StateName) -> list[RestoredRun]:
        """Return the runs of a restored state; from now on the backend writes it."""
        self._taken.add(name)
        self._schemas.pop(name, None)
        return self._runs.pop(name, [])

    def _untouched(self) -> UntouchedState:
        return UntouchedState(list(self._schemas.values()), dict(self._runs))

    def _described(self, name: StateName) -> str:
        operator, state = name
        return f"state '{state}' of operator '{self._operator_names.get(operator, operator)}'"


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
