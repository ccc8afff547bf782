"""Defines the elements of a channel, the barriers among them, and the names of channels and subtasks.

A *channel* is (edge, producer subtask, consumer subtask) in one generation. What travels on it in order are
*elements*: rows and in-band events. Each has the next number of its channel. Barriers and credit have none.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

WATERMARK_MAX_MS = 2**63 - 1


class Generation(NamedTuple):
    """Identifies one attempt to run the graph. Generations compare by the log position of the driver's fence, then by
    its counter.
    """

    fence: int
    counter: int


class SubtaskId(NamedTuple):
    """Identifies a subtask by the index of its vertex in the job graph, and its own number from 0."""

    vertex: int
    subtask: int


class ChannelId(NamedTuple):
    """Identifies a channel. `edge` is the edge's index in the plan of this generation; storage names edges by
    `Edge.name` instead.
    """

    edge: int
    producer: int
    consumer: int


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """Promises that no row with a smaller or equal timestamp follows on this channel. It is numbered like a row."""

    timestamp_ms: int


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """Excludes this channel from the consumer's event time until `Active` follows."""


class Active(msgspec.Struct, frozen=True, tag="active"):
    """Ends `Idle`."""


class Pauses(msgspec.Struct, frozen=True, tag="pauses"):
    """Promises that a clock had ended `count` pauses before it emitted the elements that follow on this channel.

    A clock is a subtask with watermark generators of its own; in a pause it is idle. It emits this before its first
    `Idle` and behind each `Active`, and those behind it pass it on at once. So a consumer sees that an idle channel has
    not heard yet of rows that another one has heard of.
    """

    clock: int
    count: int


class EndOfData(msgspec.Struct, frozen=True, tag="end-of-data"):
    """Ends its channel in this generation: no element follows."""


InBandEvent = Watermark | Idle | Active | Pauses | EndOfData


class SnapshotKind(IntEnum):
    """Names the purpose of a barrier's snapshots. The number travels with the barrier."""

    CHECKPOINT = 0
    COMMITS_ONLY = 1
    """Stores nothing, collects only committables: the end of a job without checkpointing."""
    SAVEPOINT = 2
    STOP = 3
    """A savepoint behind which the job takes no more input: it ends, or the savepoint fails and it continues."""
    RESCALE = 4
    """A checkpoint behind which the job takes no more input: it continues from it at another parallelism."""

    @property
    def is_savepoint(self) -> bool:
        """Return whether the user owns what is written: it lies in a directory of its own."""
        return self in (SnapshotKind.SAVEPOINT, SnapshotKind.STOP)

    @property
    def has_predecessor(self) -> bool:
        """Return whether a checkpoint of this kind may name segments of an earlier one; savepoints must not."""
        # 11.19: savepoints name nothing outside of their directory.
        return self in (SnapshotKind.CHECKPOINT, SnapshotKind.RESCALE)

    @property
    def terminates(self) -> bool:
        """Return whether a subtask consumes nothing after its snapshot, until the checkpoint has failed."""
        return self in (SnapshotKind.STOP, SnapshotKind.RESCALE)


class Barrier(msgspec.Struct, frozen=True):
    """Carries the common facts of all barriers of one checkpoint, aligned or unaligned.

    `alignment_timeout_ms`: None never turns unaligned (purely aligned), 0 starts unaligned, else how long after the
    trigger an aligned barrier turns unaligned. `age_ms` is the time since the trigger when the barrier left its
    sender, measured there: deadlines are local monotonic time, never a wall-clock date.

    `predecessor_id`: the canonical checkpoint whose segments this one may name instead of writing the same bytes again,
    because they stay until this one has ended; None: none.
    """

    checkpoint_id: int
    alignment_timeout_ms: int | None
    age_ms: float = 0.0
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    predecessor_id: int | None = None

    @property
    def starts_unaligned(self) -> bool:
        return self.alignment_timeout_ms == 0
