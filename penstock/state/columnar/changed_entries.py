"""Encodes the changes of columnar state since a checkpoint; of several, the newest counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState
from penstock.state.codecs import StreamMemory
from penstock.state.overriding import NewerKeys, without_repeats

BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range of changes that has about this size is closed, and the next one begins."""


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
            if size_bytes >= BYTES_PER_RANGE:
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
        if size_bytes >= BYTES_PER_RANGE:
            yield from pa.Table.from_batches(taken).combine_chunks().to_batches()
            taken, size_bytes = [], 0
    if taken:
        yield from pa.Table.from_batches(taken).combine_chunks().to_batches()


def _run(declared: StateSchema, batches: list[pa.RecordBatch], memory: StreamMemory) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(declared.operator, declared.name, entries, [memory.write(batches[0].schema, batches)])
