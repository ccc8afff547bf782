"""Checks the keyed state of a checkpoint as it lies in its segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.common.row_types.type_information import KEY_COLUMN
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import Metadata, StateRange

Overridden = set[tuple[str, str, tuple[Any, ...]]]
"""Operator, state and key of entries that one checkpoint has stored, and a later one again."""


def wrong_ranges(
    metadata: Metadata, read: Callable[[StateRange], bytes], overridden: Overridden | None = None
) -> Iterator[str]:
    """Yield the problems: a range with other entries than it says or of key groups that its subtask does not own, a key
    that a state has twice in a checkpoint. `overridden`: what a subtask has stored with a later checkpoint overrides
    what it has stored before; it keeps such keys. Once they are restored, both entries may be stored again, in one
    segment, because nobody has asked for the state yet. None: no checkpoint names the state of another.
    """
    shapes = {v.index: v for v in metadata.vertices}
    seen: dict[tuple[str, str], dict[Any, tuple[int, int, int]]] = {}
    for snapshot in metadata.subtasks:
        for state in snapshot.keyed:
            with pa.ipc.open_stream(pa.py_buffer(read(state))) as stream:
                table = stream.read_all()
            described = f"state {state.name} of {state.operator}"
            if table.num_rows != state.entries:
                yield f"{described}: a range says {state.entries} entries and holds {table.num_rows}"
            shape = shapes[snapshot.vertex]
            owned = key_group_range(shape.max_parallelism, shape.parallelism, snapshot.subtask)
            if foreign := set(table.column(KEY_GROUP_COLUMN).to_pylist()) - set(owned):
                yield f"{described}: subtask {snapshot.subtask} holds entries of foreign key groups {sorted(foreign)}"
            groups = table.column(KEY_GROUP_COLUMN).to_pylist()
            if not all(state.has_some_of(range(group, group + 1)) for group in set(groups)):
                yield f"{described}: a range has entries of other key groups than its bounds {state.bounds} say"
            names = [name for name in table.column_names if name == KEY_COLUMN or name.startswith("key.")]
            columns = [table.column(name).to_pylist() for name in names]
            known = seen.setdefault((state.operator, state.name), {})
            place = (snapshot.vertex, snapshot.subtask, state.segment)
            for key in zip(*columns, strict=True):
                before = known.get(key)
                if before is not None:
                    entry = (state.operator, state.name, key)
                    of_one_segment = before[2] == place[2]
                    if overridden is None or before[:2] != place[:2] or (of_one_segment and entry not in overridden):
                        yield f"{described}: the entry of a key was written twice"
                        return
                    overridden.add(entry)
                known[key] = place
