"""Computes the event time of a subtask: the minimum over its channels that are neither idle nor finished. When all that
have not finished are idle, it is the maximum over all channels: nobody is left to wait for.

A channel that is idle may be so from an earlier pause than another channel has heard of: rows on their way to it are
older than what the other one says. So it counts as not idle until it has heard of the same pauses.

There are *live* channels, and *virtual* ones: after a restore at another parallelism each recovered layer is a channel
of its own until it is read, because what several gates had read of an old channel may have come to different places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.protocol.values.elements import WATERMARK_MAX_MS, Active, EndOfData, Idle, InBandEvent, Pauses, Watermark
from penstock.protocol.values.metadata import ChannelTime

WATERMARK_MIN_MS = -(2**63)


class _Channel:
    """Holds the time of one channel: its newest watermark, and whether it is idle or has ended. `is_layer`: it is a
    virtual one, whose rows are all here. So idleness lets no time pass it: what another layer of the same producer says
    would make its rows late. `before_last_ms`: the newest watermark before the last one. `pauses`: the ended pauses of
    each clock that it has heard of. `is_behind`: another channel has heard of more pauses of one of them.
    """

    __slots__ = ("watermark_ms", "before_last_ms", "idle", "ended", "is_layer", "pauses", "is_behind")

    def __init__(self, time: ChannelTime, is_layer: bool = False) -> None:
        self.is_layer = is_layer
        self.watermark_ms = time.watermark_ms
        self.before_last_ms = time.before_last_ms
        self.idle = time.idle
        self.ended = time.ended
        self.pauses: dict[int, int] = {}
        self.is_behind = False

    def on_event(self, event: InBandEvent) -> None:
        match event:
            case Watermark(timestamp_ms):
                if timestamp_ms == WATERMARK_MAX_MS != self.watermark_ms:
                    self.before_last_ms = self.watermark_ms
                self.watermark_ms = max(self.watermark_ms, timestamp_ms)
            case Idle():
                self.idle = True
            case Active():
                self.idle = False
            case EndOfData():
                self.ended = True

    @property
    def lets_time_pass(self) -> bool:
        return self.idle and not self.is_layer and not self.is_behind

    def compare(self, heard: Mapping[int, int]) -> None:
        """Set `is_behind`. `heard`: the pauses of each clock that all channels together have heard of. Clocks that this
        channel has heard nothing of are not above it: each says something before it is idle for the first time.
        """
        # 5.10: idle only lets time pass if it has heard of as many pauses as the others.
        self.is_behind = any(count < heard[clock] for clock, count in self.pauses.items())

    def time(self, heard: Mapping[int, int]) -> ChannelTime:
        others = {clock: self.pauses.get(clock, -1) for clock in heard if self.pauses.get(clock) != heard[clock]}
        return ChannelTime(self.watermark_ms, self.idle, self.ended, self.before_last_ms, others)

    @property
    def reached_ms(self) -> int:
        """Return the newest watermark but the last one, which says nothing about the time of rows."""
        return self.before_last_ms if self.watermark_ms == WATERMARK_MAX_MS else self.watermark_ms


AT_START = ChannelTime(WATERMARK_MIN_MS)


class WatermarkValve:
    """Combines the times of a subtask's channels. `current_ms` never falls. `on_event`, `on_virtual` and `end_virtual`
    return it if they have raised it, else None. Callers must also check whether `is_idle` changed.
    """

    def __init__(self, channels: int, current_ms: int = WATERMARK_MIN_MS) -> None:
        self._channels = [_Channel(AT_START) for _ in range(channels)]
        self._virtual: dict[int, _Channel] = {}
        self._virtual_count = 0
        self.current_ms = current_ms
        self.pauses: dict[int, int] = {}
        """The ended pauses of each clock that any live channel has heard of."""
        self.has_news = False
        """True if `pauses` has changed since the caller last set this to False."""

    @property
    def all_ended(self) -> bool:
        """Return whether every live channel has ended: nothing follows any more."""
        return all(c.ended for c in self._channels)

    @property
    def is_idle(self) -> bool:
        """Return whether all channels that have not ended are idle, and no layer is left."""
        open_channels = [c for c in self._all() if not c.ended]
        return bool(open_channels) and all(c.lets_time_pass for c in open_channels)

    def on_event(self, channel: int, event: InBandEvent) -> int | None:
        """Handle an event on a live channel, or in a layer that the live channel continues."""
        found = self._channels[channel]
        if isinstance(event, Pauses):
            self._on_pauses(found, event)
        else:
            found.on_event(event)
        return self._risen()

    def _on_pauses(self, channel: _Channel, said: Pauses) -> None:
        channel.pauses[said.clock] = said.count
        if said.count > self.pauses.get(said.clock, -1):
            self.pauses[said.clock] = said.count
            self.has_news = True
            for other in self._channels:
                other.compare(self.pauses)
        else:
            channel.compare(self.pauses)

    # ---- virtual channels ---------------------------------------------------------------------------------------

    def add_virtual(self, time: ChannelTime) -> int:
        """Add a recovered layer whose time is `time`. Returns its number here."""
        # 5.2: a layer holds time back until it is read.
        number = self._virtual_count
        self._virtual_count += 1
        self._virtual[number] = _Channel(time, is_layer=True)
        return number

    def on_virtual(self, layer: int, event: InBandEvent) -> int | None:
        """Handle an event in a layer. An end of data ends that layer's time only. Its pauses belong to old clocks."""
        self._virtual[layer].on_event(event)
        return self._risen()

    def end_virtual(self, layer: int) -> int | None:
        """End a layer that has been read: it holds nothing back any more."""
        del self._virtual[layer]
        return self._risen()

    def virtual_time(self, layer: int) -> ChannelTime:
        return self._virtual[layer].time({})

    # ---- snapshot and restore -----------------------------------------------------------------------------------

    def times(self) -> list[ChannelTime]:
        """Return the times of the live channels."""
        return [c.time(self.pauses) for c in self._channels]

    def restore(
        self, times: Sequence[ChannelTime], current_ms: int = WATERMARK_MIN_MS, pauses: Mapping[int, int] | None = None
    ) -> None:
        """Restore the live channels to `times`, and the `pauses` that they have heard of. Finished producers are
        restored, too, and end their channels again.
        """
        self._channels = [_Channel(msgspec.structs.replace(t, ended=False)) for t in times]
        self.current_ms = max(self.current_ms, current_ms)
        self.pauses = dict(pauses or {})
        for channel, time in zip(self._channels, times):
            said = self.pauses | time.other_pauses
            channel.pauses = {clock: count for clock, count in said.items() if count >= 0}
            channel.compare(self.pauses)

    def start(self) -> int:
        """Return the combined watermark of all restored channels and layers. Without this: what they say counts only
        with the next event, which a source that is silent may never send.
        """
        self._risen()
        return self.current_ms

    # ---- time ---------------------------------------------------------------------------------------------------

    def _all(self) -> Iterable[_Channel]:
        return [*self._channels, *self._virtual.values()] if self._virtual else self._channels

    def _risen(self) -> int | None:
        # 5.4: the last watermark of one producer counts only when all have said it.
        reached = self._reached()
        if reached is None or reached <= self.current_ms:
            return None
        self.current_ms = reached
        return reached

    def _reached(self) -> int | None:
        # 5.8: when all are idle, the greatest watermark counts.
        least: int | None = None
        said_the_last, ended, idle = True, True, False
        for channel in self._all():
            last = channel.watermark_ms == WATERMARK_MAX_MS
            said_the_last = said_the_last and last
            if channel.ended:
                continue
            ended = False
            if channel.lets_time_pass:
                idle = idle or not last
            elif least is None or channel.watermark_ms < least:
                least = channel.watermark_ms
        if ended:
            return WATERMARK_MAX_MS if said_the_last else None
        if idle and least in (None, WATERMARK_MAX_MS):
            # All that continue are idle. The last watermark of the others says nothing about those: time must not end
            # before rows do. The greatest watermark counts, so that it does not matter who became idle first.
            return max(channel.reached_ms for channel in self._all())
        return least
