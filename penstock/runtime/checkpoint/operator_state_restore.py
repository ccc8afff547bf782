"""Restores operator state: each new subtask gets its lists and maps from what the old subtasks have stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.protocol.restore.rescale import redistributed
from penstock.protocol.values.metadata import OperatorPart, SubtaskSnapshot
from penstock.state.operator_state import BROADCAST, UNION, OperatorStateBackend, chosen_rows, count_rows


def restore_operator_state(
    backend: OperatorStateBackend, operator: str, old: Sequence[SubtaskSnapshot], new: int, subtask: int
) -> None:
    """Restore the share of one operator's state that belongs to subtask `subtask` of `new`. `old`: all its old
    snapshots.

    A state that nobody asks for is stored again. So that a union list does not grow meanwhile, each subtask stores its
    share only.
    """
    stored = [[part for part in snapshot.parts if part.operator == operator and part.kind] for snapshot in old]
    for name in dict.fromkeys(part.name for parts in stored for part in parts):
        parts = [[part for part in of_one if part.name == name] for of_one in stored]
        everything = [part for of_one in parts for part in of_one]
        if everything[0].kind == BROADCAST:
            own = parts[subtask] if len(old) == new else []
            given = own or everything[:1]
            backend.restore(given, given)
            continue
        share = parts[subtask] if len(old) == new else _dealt_rows(parts, new, subtask)
        backend.restore(everything if everything[0].kind == UNION else share, share)


def _dealt_rows(parts: list[list[OperatorPart]], new: int, subtask: int) -> list[OperatorPart]:
    """Return the subtask's share of the elements of all lists. `parts`: the parts of each old subtask. Elements stay in
    the type in which they are stored; there is a part for each."""
    # 6.2: each element of a split list goes to one subtask.
    rows, places, count = [], [], 0
    for of_one in parts:
        first = count
        for part in of_one:
            of_part = range(count, count + count_rows(part.items))
            places.append((part, of_part))
            count = of_part.stop
        rows.append(list(range(first, count)))
    chosen = redistributed(rows, new, subtask)
    shares: list[OperatorPart] = []
    for codec in dict.fromkeys(part.codec for part, _ in places):
        of_type = [(part, of_part) for part, of_part in places if part.codec == codec]
        at = {row: place for place, row in enumerate(row for _, of_part in of_type for row in of_part)}
        own = [at[row] for row in chosen if row in at]
        items = chosen_rows([item for part, _ in of_type for item in part.items], own)
        if own or not shares:
            shares.append(msgspec.structs.replace(of_type[0][0], items=items))
    return shares
