"""Defines the figures of a single subtask: of its work, and of its part in one checkpoint."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class SubtaskReport(NamedTuple):
    """Describes the work of a subtask in this generation, by its newest status. Shares are in [0, 1], of the time since
    the status before; rates are per second of that time.
    """

    slot: int
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    rows_in_per_s: float
    rows_out_per_s: float
    busy_share: float
    backpressured_share: float
    queued_bytes: int
    """Rows that wait at its input and its output."""
    step_ms_max: float
    """The longest step of the subtask since the status before: for so long a barrier may have waited for user code."""
    watermark_ms: int | None
    """The last watermark that was sent downstream; None: none yet."""
    lag_rows: int | None
    """Rows that a source has not read yet; None if it does not know, and for other operators."""
    since_ms: float
    """The time over which it has reported in this generation."""
    busy_ms: float
    """Its working time, within `since_ms`."""
    backpressured_ms: float
    """Its time of waiting for room at its output, within `since_ms`."""

    @property
    def idle_share(self) -> float:
        return max(0.0, 1.0 - self.busy_share - self.backpressured_share)


class SubtaskCheckpoint(NamedTuple):
    """Describes a subtask's part in one checkpoint. The times are Flink's, in milliseconds."""

    vertex: int
    subtask: int
    unaligned: bool
    """True if it has stored rows in flight, or was to."""
    acknowledged_ms: float
    """The time from the trigger to the acknowledgement at the driver (Flink: end-to-end duration)."""
    start_delay_ms: float
    """The time from the trigger to the first barrier at this subtask."""
    alignment_ms: float
    """The time from the first barrier to the last."""
    sync_ms: float
    """The time of standing still for the snapshot."""
    async_ms: float
    """The time from the snapshot to the written part, while the stream continues."""
    state_bytes: int
    written_bytes: int
    """The bytes that this checkpoint has written; what earlier ones have written is not counted."""
    persisted_bytes: int
    """Rows in flight that were stored."""


_PACKED = struct.Struct("<HI?fffffQQQ")


def packed(parts: Iterable[SubtaskCheckpoint]) -> bytes:
    """Pack parts of a checkpoint: 51 bytes each, so that a long history of a wide job takes little memory."""
    return b"".join([_PACKED.pack(*part) for part in parts])


def unpacked(parts: bytes) -> Iterator[SubtaskCheckpoint]:
    """Yield the parts that `packed` was given."""
    return map(SubtaskCheckpoint._make, _PACKED.iter_unpack(parts))


def packed_count(parts: bytes) -> int:
    return len(parts) // _PACKED.size
