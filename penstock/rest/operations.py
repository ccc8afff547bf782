"""Keeps the requests of callers (savepoints, checkpoints) until they have fetched the outcome."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REMEMBERED_MAX = 100
"""The most outcomes that are remembered, fetched or not."""
UNFINISHED_MAX = 32

Outcome = Callable[[], dict[str, Any] | None]
"""Returns what came of it, as Flink's JSON has it; None while it is in progress."""


class TooManyOperations(Exception):
    """Signals that too many operations of a job are in progress."""


class TriggerIdInUse(Exception):
    """Signals that a trigger id belongs to another kind of operation."""


@dataclass
class _Operation:
    kind: str
    look: Outcome
    is_fetched: bool = False
    _outcome: dict[str, Any] | None = None

    def outcome(self) -> dict[str, Any] | None:
        """Return the operation's outcome. Once there is an outcome it stays, whatever the job does later."""
        if self._outcome is None:
            self._outcome = self.look()
        return self._outcome


class Operations:
    """Holds the operations of one job by their trigger ids. One thread uses it."""

    def __init__(self) -> None:
        self._operations: dict[str, _Operation] = {}

    def begin(self, kind: str, trigger_id: str | None, begin: Callable[[], Outcome]) -> str:
        """Begin an operation, once per trigger id; return the id. Raises `TooManyOperations`, `TriggerIdInUse`."""
        known = None if trigger_id is None else self._operations.get(trigger_id)
        if trigger_id is not None and known is not None:
            if known.kind != kind:
                raise TriggerIdInUse(f"triggerId {trigger_id} is that of a {known.kind}: give another one, or none")
            return trigger_id
        finished = [name for name, operation in self._operations.items() if operation.outcome() is not None]
        unfinished = [o for name, o in self._operations.items() if name not in finished and o.kind == kind]
        if len(unfinished) >= UNFINISHED_MAX:
            raise TooManyOperations(f"{UNFINISHED_MAX} {kind}s are under way, and none is done: ask again when one is")
        for name in finished[: max(0, len(self._operations) - REMEMBERED_MAX + 1)]:
            del self._operations[name]
        trigger_id = trigger_id or secrets.token_hex(16)
        self._operations[trigger_id] = _Operation(kind, begin())
        return trigger_id

    def status(self, kind: str, trigger_id: str) -> dict[str, Any] | None:
        """Return an operation's status as Flink's JSON has it; None if there is no such operation."""
        operation = self._operations.get(trigger_id)
        if operation is None or operation.kind != kind:
            return None
        outcome = operation.outcome()
        if outcome is None:
            return {"status": {"id": "IN_PROGRESS"}}
        operation.is_fetched = True
        return {"status": {"id": "COMPLETED"}, "operation": outcome}

    @property
    def are_fetched(self) -> bool:
        """Return True if nobody may still come for an outcome."""
        return all(operation.is_fetched for operation in self._operations.values())
