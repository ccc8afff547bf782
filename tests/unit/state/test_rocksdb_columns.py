"""Tests RocksDB's columnar state: in which order it writes, and how long its slices may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.table_keys import key_column
from penstock.state.rocksdb.column_codec import ColumnCodec
from penstock.state.rocksdb.disk_columnar_backend import RocksDBColumnarBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings

PREFIX = b"\x00\x01"
KEY_BEGIN = slice(0, 10)
"""The state's number, the key group, and six bytes of the key."""


@pytest.mark.parametrize(
    "keys",
    [
        [pa.array(np.random.default_rng(1).integers(-(2**62), 2**62, 500))],
        [pa.array([f"{number * 7919 % 500:03}, and more" for number in range(500)])],
        [pa.array([f"{number * 7919 % 500}" * (number % 7) for number in range(500)])],
    ],
    ids=["numbers", "texts of one length", "texts of any length, some empty"],
)
def test_rows_are_written_sorted_but_for_the_ends_of_their_keys(keys: list[pa.Array]) -> None:
    schema = pa.schema([(f"key{i}", column.type) for i, column in enumerate(keys)])
    codec = ColumnCodec(PREFIX, schema, [ValueColumn("value", np.dtype(np.int64), 0)], windowed=False)
    key_groups = np.random.default_rng(2).integers(0, 40, 500).astype(np.uint16)
    rows = [key_column(column.type).rows(column) for column in keys]
    order = codec.order(key_groups, rows)
    assert sorted(order) == list(range(500))
    written = codec.keys(key_groups, rows)
    begins = [written[at][KEY_BEGIN] for at in order if len(written[at]) >= KEY_BEGIN.stop]
    assert len(begins) > 200 and begins == sorted(begins)
    groups = key_groups[order]
    assert (np.diff(groups.astype(np.int64)) >= 0).all()


def test_rows_of_windows_are_written_window_by_window() -> None:
    keys = pa.array(np.random.default_rng(3).integers(0, 2**40, 300))
    starts = pa.array(np.random.default_rng(4).integers(-3, 3, 300) * 1000)
    schema = pa.schema([("key", pa.int64()), ("window_start", pa.int64())])
    codec = ColumnCodec(PREFIX, schema, [ValueColumn("value", np.dtype(np.int64), 0)], windowed=True)
    order = codec.order(np.zeros(300, np.uint16), [key_column(c.type).rows(c) for c in (keys, starts)])
    assert (np.diff(starts.to_numpy()[order]) >= 0).all()


def test_a_backend_on_disk_says_so(tmp_path: Path) -> None:
    assert RocksDBColumnarBackend(settings=RocksDBSettings((str(tmp_path),))).is_on_disk
