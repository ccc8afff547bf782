"""Reads the rows, watermarks and idleness that a test gives, and keeps them for restarts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Iterator, NamedTuple

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.connectors.base import (
    FixedSplitEnumerator,
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)
from penstock.datastream.functions import FlatMapFunction

ROW, WATERMARK, IDLE = "row", "watermark", "idle"
_LONG_MS = 1e12
"""A reader without rows waits for so long, or until the test gives some."""


class Element(NamedTuple):
    """Holds a row, a watermark or idleness, with its time in milliseconds."""

    kind: str
    value: Any
    timestamp_ms: int


@dataclass
class Feed:
    """Holds all that a test has given to a stream. `available`: the number of elements that may be read. `at_once`: the
    number of rows that the reader may return together.
    """

    elements: list[Element] = field(default_factory=list)
    available: int = 0
    at_once: int = 1 << 20
    has_ended: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        _FEEDS[self.id] = self

    def close(self) -> None:
        """Let the feed be forgotten."""
        _FEEDS.pop(self.id, None)


_FEEDS: dict[str, Feed] = {}
"""Sources are pickled with the job, so they find their feeds by id."""


class FedSource(Source):
    """Reads a feed, in one subtask. A split contains the position, so a restored job reads again from there."""

    bounded = False

    def __init__(self, feed: str) -> None:
        self._feed = feed

    @property
    def produced_type(self) -> Any:
        return PICKLED

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored)
        return FixedSplitEnumerator([encode_split({"position": 0})])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _FedReader(_FEEDS[self._feed])


class _FedReader(SourceReader):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._position: int | None = None
        self._expects_splits = True

    def add_splits(self, splits: list[bytes]) -> None:
        for split in splits:
            self._position = decode_split(split)["position"]

    def no_more_splits(self) -> None:
        self._expects_splits = False

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        feed = self._feed
        if self._position is None:
            return NotReady(None) if self._expects_splits else None
        if self._position >= feed.available:
            return None if feed.has_ended and feed.available == len(feed.elements) else NotReady(_LONG_MS)
        rows = self._next(min(rows_max, feed.at_once))
        self._position += len(rows)
        return pa.RecordBatch.from_arrays(PICKLED.encode([tuple(row) for row in rows]), schema=PICKLED.schema)

    def _next(self, rows_max: int) -> list[Element]:
        """Return the next rows, or one element that is none: nothing is read together with a watermark."""
        assert self._position is not None
        feed, end = self._feed, self._position + rows_max
        following = feed.elements[self._position : min(end, feed.available)]
        rows = next((n for n, element in enumerate(following) if element.kind != ROW), len(following))
        return following[: max(rows, 1)]

    def snapshot(self) -> list[bytes]:
        return [] if self._position is None else [encode_split({"position": self._position})]


class GivenWatermarks(WatermarkGenerator):
    """Emits the watermarks among the elements."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        kind, _, timestamp_ms = event
        if kind == WATERMARK:
            output.emit_watermark(Watermark(timestamp_ms))
        elif kind == IDLE:
            output.mark_idle()

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


class Unwrapped(FlatMapFunction):
    """Emits the rows among the elements."""

    def flat_map(self, value: Any) -> Iterator[Any]:
        kind, row, _ = value
        if kind == ROW:
            yield row


def given_time() -> WatermarkStrategy:
    """Return the strategy of fed streams: the given timestamps and watermarks."""
    return WatermarkStrategy.for_generator(GivenWatermarks).with_timestamp_assigner(_Given())


class _Given:
    """Returns the timestamp that a test gave."""

    def __call__(self, element: Any, record_timestamp: int) -> int:
        timestamp_ms: int = element[2]
        return timestamp_ms

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self(value, record_timestamp)
