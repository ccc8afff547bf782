"""Shares the bound of an input gate among its channels, so that what is in flight does not grow with their number.

Half of the bound is reserved: each channel always has its equal part of it, so that rows need not ask before they
leave. With many channels the parts would be too small for a row, and as each may be overrun by one, the gate would hold
a row of every channel. Then nothing is reserved, and rows wait at the producer until they are granted.

Where the parts of the whole bound hold several frames each, all of it is reserved: what overruns them is little, and
rows that wait for a grant lose more than an unequal share would win.

Credit beyond the reserved windows is granted by demand: producers tell what waits for it (`Data.wanted_bytes`,
`CreditWanted`), and those that wait take turns. It is used at once, so an idle channel keeps none of it, and a channel
that has most of the rows gets most of the credit. (Flink's exclusive and floating buffers; a bound on all streams of a
connection, as in QUIC, but without credit that nobody uses.)

Channels that are blocked by an alignment do not use up the bound of the others, which have to deliver their barriers.
They have a bound of their own of two times the size. Without this: the blocked ones hold all credit, and the barriers
that they wait for never come; or, if they get none, what follows their barriers fills their producers' queues, which
then have no room for other consumers.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.protocol.channel.ends import JOINED_FRAME_BYTES, InputChannel
from penstock.protocol.values.elements import ChannelId

RESERVED_BYTES_MIN = 1024
"""Smaller windows are not reserved: a batch is charged half of it in addition to its rows."""
WINDOW_ALONE_BYTES = 4 * JOINED_FRAME_BYTES
"""Windows of this size and more share the whole bound."""
TURNS_PER_BOUND = 8
"""A channel that waits gets about this part of the bound at a time, or more if few wait."""
BOUNDS_WHILE_BLOCKED = 2
"""The number of bounds that all blocked channels together may hold."""


def reserved_window(bound_bytes: int, channels: int) -> int:
    """Return the window that each channel of a gate always has; 0: none. Both ends compute it at the start."""
    # 4.2: half of the bound in equal windows, as long as these hold a row.
    share_bytes = bound_bytes // max(channels, 1)
    if share_bytes >= WINDOW_ALONE_BYTES:
        return share_bytes
    return share_bytes // 2 if share_bytes // 2 >= RESERVED_BYTES_MIN else 0


class CreditPool:
    """Creates the channels of a gate and grants them credit. `granted` bounds the bytes that are queued at the gate or
    certain to come: by `bound_bytes` for channels that can be read, by two times of it for blocked ones. Only batches
    that are larger than what is left of a grant exceed it, one for each channel that is having its turn.
    """

    def __init__(self, bound_bytes: int, channels: Sequence[ChannelId]) -> None:
        self._bound_bytes = bound_bytes
        window_bytes = reserved_window(bound_bytes, len(channels))
        self._grants_more = window_bytes < WINDOW_ALONE_BYTES
        self.channels = [InputChannel(channel, window_bytes) for channel in channels]
        self._counted = dict.fromkeys(self.channels, (0, False))
        """The bytes of each channel that are counted in `_used_bytes`, and whether it was blocked."""
        self._used_bytes = {False: 0, True: 0}
        """Bytes at the gate or certain to come, by whether their channels are blocked."""
        self._waiting: dict[bool, dict[InputChannel, None]] = {False: {}, True: {}}
        self._to_come: set[InputChannel] = set()
        """Channels that can be read, and whose producers have reported rows that have not come."""
        for channel in self.channels:
            channel.changed = self._on_changed

    def resize(self, bound_bytes: int) -> None:
        """Divide the new bound among the channels. Bytes that were granted stay granted."""
        self._bound_bytes = bound_bytes
        window_bytes = reserved_window(bound_bytes, len(self.channels))
        self._grants_more = window_bytes < WINDOW_ALONE_BYTES
        for channel in self.channels:
            channel.window_bytes = window_bytes

    def _on_changed(self, channel: InputChannel) -> None:
        counted_bytes, was_blocked = self._counted[channel]
        blocked = bool(channel.blocked_by)
        coming_bytes = max(channel.received_bytes, min(channel.granted_bytes, channel.wanted_bytes))
        used_bytes = coming_bytes - channel.applied_bytes
        self._counted[channel] = (used_bytes, blocked)
        self._used_bytes[was_blocked] -= counted_bytes
        self._used_bytes[blocked] += used_bytes
        if blocked is not was_blocked:
            self._waiting[was_blocked].pop(channel, None)
        if channel.wanted_bytes > channel.received_bytes and not blocked:
            self._to_come.add(channel)
        else:
            self._to_come.discard(channel)
        if channel.wanted_bytes > coming_bytes:
            self._waiting[blocked].setdefault(channel)
        else:
            self._waiting[blocked].pop(channel, None)

    @property
    def expects_rows(self) -> bool:
        """Return whether rows for a channel that can be read are on their way, or wait for credit."""
        return bool(self._to_come)

    def granted(self) -> Sequence[InputChannel]:
        """Grant the free part of the bound to the channels that wait, in turns. Returns those that got some."""
        if not (self._waiting[False] or self._waiting[True]):
            return ()
        granted: dict[InputChannel, None] = {}
        # 4.2c: the rest by demand, in turns.
        for blocked, waiting in self._waiting.items():
            if not (blocked or self._grants_more):
                granted |= self._grown_windows()
                continue
            bound_bytes = self._bound_bytes * (BOUNDS_WHILE_BLOCKED if blocked else 1)
            while waiting:
                channel = next(iter(waiting))
                from_bytes = max(channel.granted_bytes, channel.received_bytes)
                least_bytes = max(bound_bytes // TURNS_PER_BOUND, 1)
                part_bytes = min(channel.wanted_bytes - from_bytes, max(least_bytes, bound_bytes // (2 * len(waiting))))
                if used_bytes := self._used_bytes[blocked]:
                    left_bytes = bound_bytes - used_bytes
                    if left_bytes < min(part_bytes, least_bytes):
                        break
                    part_bytes = min(part_bytes, left_bytes)
                channel.granted_bytes = from_bytes + part_bytes
                del waiting[channel]
                self._on_changed(channel)
                granted[channel] = None
        return list(granted)

    def _grown_windows(self) -> dict[InputChannel, None]:
        """Grant their windows to channels that wait. Without this: a channel that had no window waits for ever."""
        due = [channel for channel in self._waiting[False] if channel.credit_due() is not None]
        for channel in due:
            self._on_changed(channel)
        return dict.fromkeys(due)
