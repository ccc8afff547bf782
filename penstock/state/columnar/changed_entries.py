"""Remembers removed keys, and encodes the changes of columnar state since a checkpoint: the newest of each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.changes import ChangeLog
from penstock.state.codecs import StreamMemory
from penstock.state.overriding import NewerKeys, without_repeats


class Removed(NamedTuple):
    """Holds key columns and key groups of keys that were removed in the time with this number."""

    number: int
    keys: list[pa.Array]
    key_groups: npt.NDArray[np.uint16]


class RemovedKeys(ChangeLog[Removed]):
    """Remembers which keys were removed from a table."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def add(self, now: int, keys: list[pa.Array], key_groups: npt.NDArray[np.uint16]) -> None:
        self.parts.append(Removed(now, keys, key_groups))
        self._count += len(key_groups)
        if self._count > state_sizes.CHANGED_KEYS_MAX:
            self.forget(now)

    def forget(self, number: int) -> None:
        super().forget(number)
        self._count = sum(len(part.key_groups) for part in self.parts)


class ChangedPart(NamedTuple):
    """Holds entries that have changed, each key once; or, if `deletes`, keys that were removed, in any number."""

    batches: Iterable[pa.RecordBatch]
    deletes: bool


def encoded_changes(declared: StateSchema, parts: Sequence[ChangedPart]) -> Iterator[EncodedState]:
    """Yield runs of the entries that have changed, and of the keys that are gone. `parts`: the newest first, for a key
    may have changed again, or have been removed and come again. No key is in two runs, or twice in one. Each run is
    valid until the next.
    """
    memory = StreamMemory()
    seen = NewerKeys()
    kept: list[pa.RecordBatch] = []
    gone: list[pa.RecordBatch] = []
    size_bytes = 0
    for number, (batches, deletes) in enumerate(parts, 1):
        of_part: list[pa.RecordBatch] = []
        for batch in batches if len(parts) == 1 else combined(batches):
            if not (counts := seen.without(without_repeats(batch) if deletes else batch)).num_rows:
                continue
            if deletes:
                seen.add(counts)
                gone.append(counts)
                continue
            of_part.append(counts)
            kept.append(counts)
            size_bytes += counts.get_total_buffer_size()
            if size_bytes >= state_sizes.BYTES_PER_RANGE:
                yield _run(declared, kept, memory)
                kept, size_bytes = [], 0
        if number < len(parts):
            for batch in of_part:
                seen.add(batch)
    if kept:
        yield _run(declared, kept, memory)
    if gone:
        yield _run(declared, gone, memory)


def combined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of about `BYTES_PER_RANGE`: to look for the keys of one among others costs a table of these."""
    taken: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        taken.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= state_sizes.BYTES_PER_RANGE:
            yield from pa.Table.from_batches(taken).combine_chunks().to_batches()
            taken, size_bytes = [], 0
    if taken:
        yield from pa.Table.from_batches(taken).combine_chunks().to_batches()


def _run(declared: StateSchema, batches: list[pa.RecordBatch], memory: StreamMemory) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(declared.operator, declared.name, entries, [memory.write(batches[0].schema, batches)])
