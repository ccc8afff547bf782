"""Defines the frames that slots send to each other on a channel.

*Urgent* frames (`UrgentBarrier`, `CancelBarrier`, `CreditLimit`, `CreditWanted`) go ahead of all, have no number and
need no credit. An `AlignedBarrier` travels in its place. `Event` travels in order with rows, is numbered and needs no
credit. `Data` needs credit.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from penstock.protocol.values.elements import Barrier, ChannelId, InBandEvent

FRAME_OVERHEAD_BYTES = 512
"""A data frame is charged this in addition to its own bytes, so that many small ones are bounded, too."""


JOINED_FLUSH_BYTES = 16 * 1024
"""A channel's queue leaves at this size, even while its producer is busy making more."""


class Data(msgspec.Struct, frozen=True):
    """Carries rows [first, first + rows). `payload` is an Arrow IPC record-batch message (bytes-like) between
    processes, and a `pyarrow.RecordBatch` by reference within one. `size_bytes` is the credit that it uses, overhead
    included. `wanted_bytes`: what a `CreditWanted` would say now; 0 if no rows wait at the producer.
    """

    channel: ChannelId
    first: int
    rows: int
    size_bytes: int
    payload: Any
    wanted_bytes: int = 0

    urgent: ClassVar[bool] = False


class Event(msgspec.Struct, frozen=True):
    """Carries the in-band event that is element `number` of the channel."""

    channel: ChannelId
    number: int
    event: InBandEvent

    urgent: ClassVar[bool] = False


class AlignedBarrier(msgspec.Struct, frozen=True):
    """Carries a barrier in its place: directly before element `position`."""

    channel: ChannelId
    position: int
    barrier: Barrier

    urgent: ClassVar[bool] = False


class UrgentBarrier(msgspec.Struct, frozen=True):
    """Carries a barrier that has overtaken rows. `emitted`: the cut of this channel at the producer. `handed`: the
    first number that the producer had not yet handed to the connection; the producer stores [handed, emitted), the
    consumer [applied, handed).
    """

    channel: ChannelId
    emitted: int
    handed: int
    barrier: Barrier

    urgent: ClassVar[bool] = True


class CancelBarrier(msgspec.Struct, frozen=True):
    """Reports that the producer has declined a checkpoint: its barrier will not come on this channel."""

    channel: ChannelId
    checkpoint_id: int

    urgent: ClassVar[bool] = True


class CreditLimit(msgspec.Struct, frozen=True):
    """Lets the producer send up to `limit_bytes` in all on this channel in this generation. The consumer sends it."""

    channel: ChannelId
    limit_bytes: int

    urgent: ClassVar[bool] = True


class CreditWanted(msgspec.Struct, frozen=True):
    """Reports that rows wait for credit: all rows of the channel, those sent before included, need `wanted_bytes`. The
    producer sends it where no data frame can say so.
    """

    channel: ChannelId
    wanted_bytes: int

    urgent: ClassVar[bool] = True


Frame = Data | Event | AlignedBarrier | UrgentBarrier | CancelBarrier | CreditLimit | CreditWanted
