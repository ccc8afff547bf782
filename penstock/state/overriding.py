"""Finds which entries of a state count, where later runs override entries of earlier ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.state.codecs import RestoredRun

_KEY_PREFIX = "key."
"""The prefix of the key columns of columnar state."""

KeyGroups = npt.NDArray[np.uint16]


class NewerKeys:
    """Collects the keys of newer runs, which entries of older runs do not count for. Runs are added newest first."""

    def __init__(self) -> None:
        self._parts: list[tuple[KeyGroups, pa.Array]] = []
        """Each sorted by key group."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the keys of a batch, those that it deletes too."""
        if not batch.num_rows:
            return
        groups, keys = batch.column(KEY_GROUP_COLUMN).to_numpy(), _keys_of(batch)
        if (groups[1:] < groups[:-1]).any():
            order: npt.NDArray[Any] = np.argsort(groups, kind="stable")
            groups, keys = groups[order], keys.take(pa.array(order))
        self._parts.append((groups, keys))

    def without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the entries of an older run that no newer run overrides."""
        if not self._parts or not batch.num_rows:
            return batch
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        least, most = groups.min(), groups.max()
        newer = []
        for of_part, keys in self._parts:
            first, end = np.searchsorted(of_part, least), np.searchsorted(of_part, most, side="right")
            if end > first:
                newer.append(keys.slice(first, end - first))
        if not newer:
            return batch
        overridden = pc.is_in(_keys_of(batch), value_set=pa.chunked_array(newer))
        return batch.filter(pc.invert(overridden)) if pc.any(overridden).as_py() else batch


def without_repeats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of keys with each of them once."""
    of_key = pc.dictionary_encode(_keys_of(batch)).indices.to_numpy()
    _, first = np.unique(of_key, return_index=True)
    return batch if len(first) == batch.num_rows else batch.take(pa.array(np.sort(first)))


def consolidated(runs: list[RestoredRun]) -> list[RestoredRun]:
    """Return runs of which none overrides another. What they delete is gone."""
    if len(runs) < 2:
        return [run for run in runs if not run.deletes]
    newer = NewerKeys()
    kept: list[RestoredRun] = []
    for run in reversed(runs):
        if not run.deletes:
            kept.insert(0, RestoredRun(run.declared, run.schema, [newer.without(batch) for batch in run.batches]))
        for batch in run.batches:
            newer.add(batch)
    return kept


def _keys_of(batch: pa.RecordBatch) -> pa.Array:
    """Return a column that is equal where keys are: the canonical keys, or the key's only column; of several columns,
    their texts, each behind its length.
    """
    if KEY_COLUMN in batch.schema.names:
        return batch.column(KEY_COLUMN)
    columns = [column for name, column in zip(batch.schema.names, batch.columns) if name.startswith(_KEY_PREFIX)]
    if len(columns) == 1:
        return columns[0]
    parts = []
    for column in columns:
        text = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
        parts += [pc.binary_length(text).cast(pa.string()).cast(pa.binary()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b":", pa.binary()))
