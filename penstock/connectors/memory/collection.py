"""Reads rows that the program has already, as a stream."""

from __future__ import annotations

import re
from typing import Any, Iterable

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.connectors.base import (
    FixedSplitEnumerator,
    MalformedRecord,
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)

_ROWS_ENCODED_AT_ONCE = 4096


class CollectionSource(Source):
    """Reads the rows of a collection in their order.

    There is one split, so one subtask reads, whatever the parallelism.

    `rows` is an iterable, which is read once, here, and travels in the pickled source. `type_info` is the type of the
    rows; None: they are pickled.
    """

    def __init__(self, rows: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        self._rows = list(rows)
        self._type_info = type_info

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def validate(self) -> None:
        """Encode all rows. Raises `MalformedRecord`, which names the first row that does not fit its type."""
        for first in range(0, len(self._rows), _ROWS_ENCODED_AT_ONCE):
            self._encode(first)

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored)
        return FixedSplitEnumerator([encode_split({"offset": 0})])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _CollectionReader(self)

    def __len__(self) -> int:
        return len(self._rows)

    def _encode(self, first: int) -> pa.RecordBatch:
        """Encode the rows from `first`, at most `_ROWS_ENCODED_AT_ONCE`."""
        rows = self._rows[first : first + _ROWS_ENCODED_AT_ONCE]
        row_type = self._type_info or PICKLED
        try:
            return pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)
        except RowTypeError as error:
            place = f"row {first + error.row_index} of the collection"
            raise MalformedRecord(
                f"{re.sub(r'^row [0-9]+', place, str(error))}. Correct the row, or its type."
            ) from error


class _CollectionReader(SourceReader):
    def __init__(self, source: CollectionSource) -> None:
        self._source = source
        self._offset: int | None = None
        self._encoded: pa.RecordBatch | None = None
        self._encoded_first = 0
        self._first = 0
        self._finished: list[str] = []
        self._no_more = False

    def add_splits(self, splits: list[bytes]) -> None:
        for split in splits:
            self._offset = decode_split(split)["offset"]
            self._encoded = None

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if self._offset is None or self._offset >= len(self._source):
            if self._offset is not None:
                self._finished.append(self.current_split)
            self._offset = None
            return None if self._no_more else NotReady(None)
        if self._encoded is None or self._offset >= self._encoded_first + self._encoded.num_rows:
            self._encoded_first = self._offset
            self._encoded = self._source._encode(self._offset)
        batch = self._encoded.slice(self._offset - self._encoded_first, rows_max)
        self._first = self._offset
        self._offset += batch.num_rows
        return batch

    def place_of(self, row: int) -> str:
        return f"row {self._first + row} of the collection"

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        if self._offset is None or self._offset >= len(self._source):
            return []
        return [encode_split({"offset": self._offset})]
