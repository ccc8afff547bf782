from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.common.types import Types
from penstock.datastream.connectors.base import WriterContext
from penstock.datastream.connectors.memory.discard import DiscardingSink
from penstock.datastream.connectors.print import PrintSink


def written(sink, rows, subtask=0, parallelism=1, row_type=None):
    lines = []
    context = WriterContext(subtask, parallelism, "print", "0" * 32, "i", True, row_type, lines.extend)
    encoding = row_type or Types.PICKLED_BYTE_ARRAY()
    sink.create_writer(context, []).write(pa.RecordBatch.from_arrays(encoding.encode(rows), schema=encoding.schema))
    return lines


@pytest.mark.parametrize(
    ("identifier", "parallelism", "expected"),
    [(None, 1, "7"), (None, 4, "3> 7"), ("out", 1, "out> 7"), ("out", 4, "out:3> 7")],
)
def test_prefixes_as_flink_prints_them(identifier, parallelism, expected):
    assert written(PrintSink(identifier), [7], 2 if parallelism > 1 else 0, parallelism, Types.LONG()) == [expected]


def test_untyped_rows_and_line_breaks():
    assert written(PrintSink(), [("a", 1), "x\ny"]) == ["('a', 1)", "x", "y"]


def test_discarding_keeps_quiet():
    assert written(DiscardingSink(), [1, 2]) == []
