"""Defines generators, which make watermarks from the timestamps of rows: the interface, and those that are built in."""

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
    """Promises that no row with a timestamp (ms since the epoch) of at most `timestamp` will follow."""

    timestamp: int

    def __post_init__(self) -> None:
        if not isinstance(self.timestamp, int) or isinstance(self.timestamp, bool):
            raise TypeError(f"a watermark's timestamp is a whole number of milliseconds, got {self.timestamp!r}")
        if not NO_TIMESTAMP <= self.timestamp < 2**63:
            raise ValueError(f"a watermark's timestamp (milliseconds) must fit in 64 bits, got {self.timestamp}")

    def get_timestamp(self) -> int:
        """Return the timestamp in milliseconds since the epoch."""
        return self.timestamp


class WatermarkOutput(ABC):
    """Takes the watermarks of a generator."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """Emit a watermark, and mark the stream as active. A watermark that is not larger than the last one is ignored.

        Args:
            watermark: The watermark.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Mark the stream as idle: operators that read it with others do not wait for its watermarks."""

    @abstractmethod
    def mark_active(self) -> None:
        """Mark the stream as active, so that operators wait for its watermarks again."""


class WatermarkGenerator(ABC):
    """Makes watermarks from the timestamps of rows. There is one per subtask, or per split of a source.

    What `snapshot` returns is kept in checkpoints. By default that is nothing: a restored generator begins again, and
    the watermark does not advance until it has reached its old value.
    """

    @abstractmethod
    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        """Process a row. Called for every row, after its timestamp has been assigned.

        Args:
            event: The row.
            event_timestamp: Its timestamp in milliseconds since the epoch.
            output: Takes a watermark, if the row gives reason to emit one.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit a watermark if time has advanced. Called every `pipeline.auto-watermark-interval`.

        That is also done before the first row, and, after a restore at another parallelism, once for each old
        generator of a stream that is not a source.

        Args:
            output: Takes the watermark.
        """

    def snapshot(self) -> bytes:
        """Return the state to restore the generator from. The default is b""."""
        return b""

    def restore(self, state: bytes) -> None:
        """Continue from a snapshot. Called before the first row.

        Args:
            state: What `snapshot` returned.
        """


class MaxTimestampGenerator(WatermarkGenerator):
    """Makes watermarks from the largest timestamp of several rows.

    It is called once for a slice of a batch instead of per row.
    """

    @abstractmethod
    def on_max(self, timestamp_ms: int) -> None:
        """Process the rows since the last call.

        Args:
            timestamp_ms: The largest of their timestamps.
        """

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        """Process a row, by its timestamp only.

        Args:
            event: The row.
            event_timestamp: Its timestamp in milliseconds since the epoch.
            output: Not used.
        """
        self.on_max(event_timestamp)


class BoundedOutOfOrdernessWatermarks(MaxTimestampGenerator):
    """Emits the largest timestamp so far, less the bound, less 1 ms.

    The last millisecond is for rows with the same timestamp, which may follow.
    """

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
    """Emits the largest timestamp so far, less 1 ms: timestamps never fall."""

    def __init__(self) -> None:
        super().__init__(Duration(0))


class NoWatermarksGenerator(MaxTimestampGenerator):
    """Emits no watermarks."""

    def on_max(self, timestamp_ms: int) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass
