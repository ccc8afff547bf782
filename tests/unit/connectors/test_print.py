"""Compares what the print sink prints with Flink's: the number of the subtask, rows, and line breaks in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.common.row_types.type_information import TypeInformation
from penstock.common.types import Types
from penstock.connectors.memory.discard import DiscardingSink
from penstock.connectors.memory.print_sink import PrintSink
from penstock.datastream.connectors.base import WriterContext


def written(
    sink: PrintSink | DiscardingSink,
    rows: list[Any],
    subtask: int = 0,
    parallelism: int = 1,
    row_type: TypeInformation | None = None,
) -> list[str]:
    lines: list[str] = []
    context = WriterContext(subtask, parallelism, "print", "0" * 32, "i", True, row_type, lines.extend)
    encoding = row_type or Types.PICKLED_BYTE_ARRAY()
    sink.create_writer(context, []).write(pa.RecordBatch.from_arrays(encoding.encode(rows), schema=encoding.schema))
    return lines


@pytest.mark.parametrize(
    ("identifier", "parallelism", "expected"),
    [(None, 1, "7"), (None, 4, "3> 7"), ("out", 1, "out> 7"), ("out", 4, "out:3> 7")],
)
def test_prefixes_as_flink_prints_them(identifier: str | None, parallelism: int, expected: str) -> None:
    assert written(PrintSink(identifier), [7], 2 if parallelism > 1 else 0, parallelism, Types.LONG()) == [expected]


def test_untyped_rows_and_line_breaks() -> None:
    assert written(PrintSink(), [("a", 1), "x\ny"]) == ["('a', 1)", "x", "y"]


def test_discarding_keeps_quiet() -> None:
    assert written(DiscardingSink(), [1, 2]) == []
