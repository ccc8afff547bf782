"""Restores operator state: each new subtask gets its lists and maps from what the old subtasks have stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from penstock.protocol.restore.rescale import redistributed
from penstock.protocol.values.metadata import OperatorPart, SubtaskSnapshot
from penstock.state.operator_state import BROADCAST, UNION, OperatorStateBackend, chosen_rows, count_rows


def restore_operator_state(
    backend: OperatorStateBackend, operator: str, old: Sequence[SubtaskSnapshot], new: int, subtask: int
) -> None:
    """Give the backend what subtask `subtask` of `new` gets of one operator's state. `old`: all its old snapshots.

    A state that nobody asks for is stored again. So that a union list does not grow meanwhile, each subtask stores its
    share only.
    """
    stored = [{p.name: p for p in snapshot.parts if p.operator == operator and p.kind} for snapshot in old]
    for name in dict.fromkeys(name for parts in stored for name in parts):
        parts = [found.get(name) for found in stored]
        declared = next(part for part in parts if part is not None)
        if declared.kind == BROADCAST:
            own = parts[subtask] if len(old) == new else None
            given = own or declared
            backend.restore(given, given)
            continue
        items = [[] if part is None else part.items for part in parts]
        share = _with_items(declared, _dealt_rows(items, new, subtask))
        everything = _with_items(declared, [item for of_one in items for item in of_one])
        backend.restore(everything if declared.kind == UNION else share, share)


def _with_items(part: OperatorPart, items: list[bytes]) -> OperatorPart:
    return msgspec.structs.replace(part, items=items)


def _dealt_rows(items: list[list[bytes]], new: int, subtask: int) -> list[bytes]:
    """Return the subtask's share of the elements of all lists."""
    if len(items) == new:
        return items[subtask]
    ends = list(accumulate(count_rows(of_one) for of_one in items))
    rows = [list(range(start, end)) for start, end in zip([0, *ends], ends)]
    return chosen_rows([item for of_one in items for item in of_one], redistributed(rows, new, subtask))
