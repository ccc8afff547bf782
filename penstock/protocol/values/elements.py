"""What has a number on a channel, what travels beside it, and the names of both ends.

A *channel* is (edge, producer subtask, consumer subtask) in one generation. What travels on it in order are
*elements*: rows and in-band events. Each has the next number of its channel. Barriers and credit have none.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

WATERMARK_MAX_MS = 2**63 - 1


class Generation(NamedTuple):
    """One attempt to run the graph. Compared in this order: log position of the driver's fence, then its counter."""

    fence: int
    counter: int


class SubtaskId(NamedTuple):
    vertex: int
    subtask: int


class ChannelId(NamedTuple):
    """`edge` is the edge's index in the plan of this generation; storage names edges by `Edge.name` instead."""

    edge: int
    producer: int
    consumer: int


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """No row with a smaller or equal timestamp follows on this channel. Numbered like a row."""

    timestamp_ms: int


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """The producer has nothing to say about time until it is active again."""


class Active(msgspec.Struct, frozen=True, tag="active"):
    """Ends `Idle`."""


class EndOfData(msgspec.Struct, frozen=True, tag="end-of-data"):
    """The last element of its channel in this generation."""


InBandEvent = Watermark | Idle | Active | EndOfData


class Barrier(msgspec.Struct, frozen=True):
    """What every barrier of one checkpoint says, whichever way it travels.

    `alignment_timeout_ms`: None never turns unaligned (purely aligned), 0 starts unaligned, else how long after the
    trigger an aligned barrier turns unaligned. `age_ms` is the time since the trigger when the barrier left its
    sender, measured there: deadlines are local monotonic time, never a wall-clock date.
    `commits_only`: nothing is stored, only committables are collected (the end of a job without checkpointing).
    """

    checkpoint_id: int
    alignment_timeout_ms: int | None
    age_ms: float = 0.0
    commits_only: bool = False

    @property
    def starts_unaligned(self) -> bool:
        return self.alignment_timeout_ms == 0
