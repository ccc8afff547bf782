"""Records that were read ahead: decoded in batches of a useful size, taken in slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.common.row_types.scalar_types import LONG
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.kafka.records_ahead import Partition, RecordsAhead
from penstock.connectors.messages.decoding import MessageDecoder, RefusedMessage

NUMBERS = pa.schema([("number", pa.int64())])


class Counting(MessageDecoder):
    """Decodes numbers, `copies` rows each, and counts its calls."""

    def __init__(self, messages_at_once: int = 4, copies: int = 1) -> None:
        self.messages_at_once = messages_at_once
        self.rows_per_message_max = copies
        self.calls = 0

    @property
    def produced_type(self) -> TypeInformation:
        return LONG

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        self.calls += 1
        try:
            numbers = [int(value) for value in values if value is not None for _ in range(self.rows_per_message_max)]
        except ValueError as error:
            raise RefusedMessage(str(error)) from None
        return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=NUMBERS)

    def messages_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        return None if self.rows_per_message_max == 1 else np.arange(rows.num_rows) // self.rows_per_message_max


def ahead(values: list[bytes | None]) -> RecordsAhead:
    offsets = np.arange(100, 100 + len(values))
    return RecordsAhead(Partition("in", 0, 100, None), values, offsets, offsets * 10, 100 + len(values))


def drained(records: RecordsAhead, decoder: MessageDecoder, rows_max: int) -> list[tuple[list[int], list[int], int]]:
    """Numbers, indices of refused records, and the first record left, of each piece."""
    pieces = []
    while not records.is_empty:
        piece = records.take(rows_max, decoder)
        numbers = piece.rows.column(0).to_pylist() if piece.rows.num_rows else []
        pieces.append((numbers, list(piece.refused), records.at))
    return pieces


def test_slices_are_taken_from_batches_that_are_decoded_once() -> None:
    decoder = Counting(messages_at_once=4)
    records = ahead([b"%d" % number for number in range(6)])
    assert drained(records, decoder, 2) == [([0, 1], [], 2), ([2, 3], [], 4), ([4, 5], [], 6)]
    assert decoder.calls == 2


def test_a_slice_that_is_larger_than_a_batch_is_decoded_whole() -> None:
    decoder = Counting(messages_at_once=2)
    assert drained(ahead([b"%d" % number for number in range(6)]), decoder, 10) == [([0, 1, 2, 3, 4, 5], [], 6)]
    assert decoder.calls == 1


@pytest.mark.parametrize("rows_max", [1, 2, 5])
def test_refused_records_belong_to_the_slice_in_which_they_are_passed(rows_max: int) -> None:
    records = ahead([b"0", b"x", None, b"3", b"y", b"5"])
    pieces = drained(records, Counting(), rows_max)
    assert [number for numbers, _, _ in pieces for number in numbers] == [0, 3, 5]
    begin = 0
    for _, refused, end in pieces:
        assert refused == [index for index in (1, 4) if begin <= index < end]
        begin = end


def test_a_message_of_several_rows_is_never_cut() -> None:
    pieces = drained(ahead([b"0", b"1", None, b"3"]), Counting(copies=2), 3)
    assert pieces == [([0, 0], [], 1), ([1, 1], [], 2), ([], [], 3), ([3, 3], [], 4)]


def test_each_row_has_the_time_of_its_record() -> None:
    records = ahead([b"0", None, b"2"])
    rows = records.take(10, Counting()).rows
    assert rows.column(1).to_pylist() == [1000, 1020]
