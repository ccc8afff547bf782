"""Makes hybrid sources for tests, and sources with ways of their own to be parts of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common import Types
from penstock.connectors.base import FixedSplitEnumerator, decode_split, encode_split
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream.connectors.base import (
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource


def hybrid(*sources: Source) -> HybridSource:
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder.add_source(source)
    return builder.build()


def numbers(first: int, last: int) -> Source:
    return NumberSequenceSource(first, last)


def listed(first: int, last: int) -> Source:
    return CollectionSource(range(first, last + 1), Types.LONG())


class Discovered(NumberSequenceSource):
    """Finds its ranges outside, in several discoveries, and gives each to a certain reader, as partitions are."""

    def __init__(self, start: int, end: int, discoveries: int = 2) -> None:
        super().__init__(start, end)
        self.discoveries = discoveries
        self.reported: list[list[int]] = []

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return _Discovering(self, parallelism, restored)


class _Discovering(SplitEnumerator):
    discovers = True
    discovery_interval_ms = 10.0
    wants_checkpoints = True

    def __init__(self, source: Discovered, parallelism: int, restored: bytes | None) -> None:
        self._source = source
        self._parallelism = parallelism
        state: Any = {"next": 0, "waiting": []} if restored is None else decode_split(restored)
        self._next: int = state["next"]
        self._waiting: list[bytes] = [encode_split(split) for split in state["waiting"]]

    def next_splits(self, subtask: int) -> list[bytes] | None:
        own = [split for split in self._waiting if decode_split(split)["split"] % self._parallelism == subtask]
        self._waiting = [split for split in self._waiting if split not in own]
        return own or ([] if self._next < self._source.discoveries else None)

    def return_splits(self, splits: list[bytes]) -> None:
        self._waiting += splits

    def discover(self) -> Any:
        return self._next

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        source, assigned = self._source, dict[int, list[bytes]]()
        if found < source.discoveries:
            self._next = found + 1
            count = source.end - source.start + 1
            first, after = (source.start + count * part // source.discoveries for part in (found, found + 1))
            for number in range(first, after):
                split = encode_split({"split": number, "next": number, "end": number})
                assigned.setdefault(number % self._parallelism, []).append(split)
        return assigned

    def snapshot(self) -> bytes:
        return encode_split({"next": self._next, "waiting": [decode_split(split) for split in self._waiting]})

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        self._source.reported.append(sorted(decode_split(split)["next"] for split in splits))


class Binary(NumberSequenceSource):
    """Has splits and an enumerator whose bytes are no JSON, and readers that report no ends."""

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return _BinaryEnumerator([b"\xff%d" % n for n in range(self.start, self.end + 1)] if restored is None else
                                 [part for part in restored.split(b"|") if part])  # fmt: skip

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return BinaryReader(self.produced_type.schema)


class _BinaryEnumerator(FixedSplitEnumerator):
    def snapshot(self) -> bytes:
        return b"|".join(self._splits)


class BinaryReader(SourceReader):
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._splits: list[bytes] = []
        self._current = ""
        self._no_more = False

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits += splits

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self._splits:
            return None if self._no_more else NotReady(None)
        number = int(self._splits.pop(0)[1:])
        self._current = str(number)
        return pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], schema=self._schema)

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        return [split[1:].decode() for split in self._splits]

    def snapshot(self) -> list[bytes]:
        return list(self._splits)
