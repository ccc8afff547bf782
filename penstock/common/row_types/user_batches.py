"""Copies those arrays of a user's batches that the user's function may still change.

An array of NumPy's becomes one of Arrow's without a copy, so the function may write to it again while its rows still
wait to be sent.
"""

from __future__ import annotations

import pyarrow as pa


def independent(made: pa.RecordBatch, given: pa.RecordBatch | None = None) -> pa.RecordBatch:
    """Copy the columns of a batch that a user's function may still change; NumPy arrays become Arrow's without a copy.

    Args:
        made: The batch that the function returned.
        given: The batch that the function got. Columns that both share are not copied.

    Returns:
        A batch that does not change.
    """
    lasting = set() if given is None else {b.address for c in given.columns for b in c.buffers() if b is not None}

    def lasts(column: pa.Array) -> bool:
        return all(buffer is None or buffer.address in lasting for buffer in column.buffers())

    # Arrow would hand a single array back as it is.
    columns = [c if lasts(c) else pa.concat_arrays([c, c.slice(0, 0)]) for c in made.columns]
    return pa.RecordBatch.from_arrays(columns, schema=made.schema)
