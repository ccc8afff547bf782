"""Event time of a subtask: the minimum over its input channels that are neither idle nor finished."""

from __future__ import annotations

from penstock.protocol.elements import WATERMARK_MAX_MS, Active, EndOfData, Idle, InBandEvent, Watermark

WATERMARK_MIN_MS = -(2**63)


class WatermarkValve:
    """`on_event` returns the watermark to pass on, if it has risen. The emitted watermark never falls."""

    def __init__(self, channels: int, emitted_ms: int = WATERMARK_MIN_MS) -> None:
        self._watermark_ms = [WATERMARK_MIN_MS] * channels
        self._idle = [False] * channels
        self._ended = [False] * channels
        self.emitted_ms = emitted_ms

    @property
    def all_ended(self) -> bool:
        return all(self._ended)

    def on_event(self, channel: int, event: InBandEvent) -> int | None:
        match event:
            case Watermark(timestamp_ms):
                self._watermark_ms[channel] = max(self._watermark_ms[channel], timestamp_ms)
            case Idle():
                self._idle[channel] = True
            case Active():
                self._idle[channel] = False
            case EndOfData():
                self._ended[channel] = True
        open_channels = [
            w for w, idle, ended in zip(self._watermark_ms, self._idle, self._ended) if not idle and not ended
        ]
        if open_channels:
            reached = min(open_channels)
        elif self.all_ended:
            reached = WATERMARK_MAX_MS if self._all_said_the_last() else self.emitted_ms
        else:
            return None
        if reached <= self.emitted_ms:
            return None
        self.emitted_ms = reached
        return reached

    def _all_said_the_last(self) -> bool:
        return all(w == WATERMARK_MAX_MS for w in self._watermark_ms)

    def snapshot(self) -> list[tuple[int, bool]]:
        return list(zip(self._watermark_ms, self._idle))

    def restore(self, channels: list[tuple[int, bool]]) -> None:
        """At the same parallelism everything continues exactly."""
        self._watermark_ms = [w for w, _ in channels]
        self._idle = [i for _, i in channels]
