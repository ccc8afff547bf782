"""What makes watermarks out of the timestamps of rows: the interface, and the generators that are built in."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.common.time import Duration

NO_TIMESTAMP = -(2**63)
"""The smallest 64-bit number: the timestamp of a row that has none, and the watermark of a stream without any."""

_STATE = struct.Struct("<q")


@dataclass(frozen=True, order=True)
class Watermark:
    """Says that no row with a timestamp (ms) of at most `timestamp` will follow."""

    timestamp: int

    def __post_init__(self) -> None:
        if not isinstance(self.timestamp, int) or isinstance(self.timestamp, bool):
            raise TypeError(f"a watermark's timestamp is a whole number of milliseconds, got {self.timestamp!r}")
        if not NO_TIMESTAMP <= self.timestamp < 2**63:
            raise ValueError(f"a watermark's timestamp (milliseconds) must fit in 64 bits, got {self.timestamp}")

    def get_timestamp(self) -> int:
        return self.timestamp


class WatermarkOutput(ABC):
    """Where a generator puts its watermarks. One that is not larger than the last is ignored."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """Makes the stream active again, too."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Nobody waits for this stream's watermarks until it is active again."""

    @abstractmethod
    def mark_active(self) -> None: ...


class WatermarkGenerator(ABC):
    """One per subtask, or per split of a source. `on_periodic_emit` is called every `pipeline.auto-watermark-interval`.

    What `snapshot` returns is kept in checkpoints. By default that is nothing: then a restored generator learns anew,
    and the watermark stands still until it has."""

    @abstractmethod
    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        """For every row, after its timestamp (ms) has been assigned."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        """`state` is what `snapshot` returned; called before the first row."""


class MaxTimestampGenerator(WatermarkGenerator):
    """A generator that needs no row, only the largest timestamp of several: it is called once for a slice."""

    @abstractmethod
    def on_max(self, timestamp_ms: int) -> None:
        """`timestamp_ms` is the largest timestamp of the rows since the last call."""

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        self.on_max(event_timestamp)


class BoundedOutOfOrdernessWatermarks(MaxTimestampGenerator):
    """The largest timestamp seen, less the bound, less one millisecond (rows of the same timestamp may follow)."""

    def __init__(self, max_out_of_orderness: Duration) -> None:
        self._bound_ms = max_out_of_orderness.to_millis()
        self._largest_ms: int | None = None

    def on_max(self, timestamp_ms: int) -> None:
        if self._largest_ms is None or timestamp_ms > self._largest_ms:
            self._largest_ms = timestamp_ms

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._largest_ms is not None:
            output.emit_watermark(Watermark(max(self._largest_ms - self._bound_ms - 1, NO_TIMESTAMP)))

    def snapshot(self) -> bytes:
        return b"" if self._largest_ms is None else _STATE.pack(self._largest_ms)

    def restore(self, state: bytes) -> None:
        self._largest_ms = _STATE.unpack(state)[0] if state else None


class AscendingTimestampsWatermarks(BoundedOutOfOrdernessWatermarks):
    """For timestamps that never fall."""

    def __init__(self) -> None:
        super().__init__(Duration(0))


class NoWatermarksGenerator(MaxTimestampGenerator):
    def on_max(self, timestamp_ms: int) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass
