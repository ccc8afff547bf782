"""Keeps the rows of buckets that have no open part yet, in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_BATCHES_MAX = 256
_BATCH_BYTES = 1024
"""Estimated overhead of a batch, whatever its number of rows."""


class _Bucket:
    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size_bytes = 0


class WaitingRows:
    """Holds rows by bucket, in their order. `size_bytes` is the size of all of them."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self.size_bytes = 0

    def __contains__(self, bucket: str) -> bool:
        return bucket in self._buckets

    @property
    def buckets(self) -> list[str]:
        """Return the buckets, the one that has waited longest first."""
        return list(self._buckets)

    @property
    def largest(self) -> str:
        """Return the bucket with most bytes."""
        return max(self._buckets, key=lambda bucket: self._buckets[bucket].size_bytes)

    def add(self, bucket: str, rows: pa.RecordBatch) -> int:
        """Keep rows of a bucket.

        Args:
            bucket: The bucket.
            rows: Its rows.

        Returns:
            The size of all rows of the bucket, in bytes.
        """
        kept = self._buckets.setdefault(bucket, _Bucket())
        # A copy: slices would keep the rows of other buckets in memory when those have been written.
        kept.batches.append(rows.take(pa.array(np.arange(rows.num_rows))))
        added = kept.batches[-1].nbytes + _BATCH_BYTES
        if len(kept.batches) > _BATCHES_MAX:
            kept.batches = [pa.concat_batches(kept.batches)]
            added = kept.batches[0].nbytes + _BATCH_BYTES - kept.size_bytes
        kept.size_bytes += added
        self.size_bytes += added
        return kept.size_bytes

    def take(self, bucket: str) -> list[pa.RecordBatch]:
        """Remove the rows of a bucket.

        Args:
            bucket: The bucket.

        Returns:
            Its rows, [] if it has none.
        """
        taken = self._buckets.pop(bucket, None)
        if taken is None:
            return []
        self.size_bytes -= taken.size_bytes
        return taken.batches
