"""Tests timestamps of Parquet: as Spark's default writer stores them (INT96), far away, and with nanoseconds."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.testing import read_all, verify_source
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.parquet import LossyTimestamps, ParquetColumnarRowInputFormat

LAST = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
FIRST = datetime.datetime(1, 1, 1)
NOON_NS = 1_600_000_000_123_456_000
NOON = datetime.datetime(2020, 9, 13, 12, 26, 40, 123456)


def written(folder: Path, array: pa.Array, int96: bool = True, **options: Any) -> str:
    path = folder / "a.parquet"
    table = pa.table({"id": pa.array(range(len(array)), pa.int64()), "at": array})
    pq.write_table(table, path, use_deprecated_int96_timestamps=int96, **options)
    return str(path)


def read(path: str, way: LossyTimestamps = LossyTimestamps.REFUSE) -> list[Any]:
    return [row.at for row in read_all(FileSource.for_parquet(path, lossy_timestamps=way))]


@settings(deadline=None)
@given(st.lists(st.none() | st.datetimes(FIRST, LAST), max_size=20))
def test_int96_has_all_years_to_the_microsecond(times: list[datetime.datetime | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert read(written(Path(folder), pa.array(times, pa.timestamp("us")))) == times


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_digits_behind_the_microsecond_are_found_wherever_they_are(nanoseconds: list[int | None]) -> None:
    epoch, step = FIRST.replace(1970), datetime.timedelta(microseconds=1)
    exact = [None if n is None else epoch + n // 1000 * step for n in nanoseconds]
    nulls = [None if n is None or n % 1000 else time for n, time in zip(nanoseconds, exact)]
    with tempfile.TemporaryDirectory() as folder:
        for int96 in (True, False):
            path = written(Path(folder), pa.array(nanoseconds, pa.timestamp("ns")), int96)
            assert read(path, LossyTimestamps.COERCE) == exact
            assert read(path, LossyTimestamps.NULL) == nulls
            if exact == nulls:
                assert read(path) == exact
            else:
                row = next(i for i, n in enumerate(nanoseconds) if n is not None and n % 1000)
                with pytest.raises(SourceError, match=f"'at', row {row} has .*COERCE.*NULL"):
                    read(path)


@pytest.mark.parametrize("int96", [True, False])
def test_row_groups_are_read_once_through_restores(tmp_path: Path, int96: bool) -> None:
    times = pa.array([NOON_NS + n for n in range(3000)], pa.timestamp("ns"))
    path = written(tmp_path, times, int96, row_group_size=700)
    source = FileSource.for_parquet(path, lossy_timestamps=LossyTimestamps.NULL)
    expected = [(n, NOON + datetime.timedelta(microseconds=n // 1000) if n % 1000 == 0 else None) for n in range(3000)]
    assert [tuple(row) for row in read_all(source)] == expected
    verify_source(source, read_all(source), rows_max=(500,), reads_lost=(0, 2))
    with pytest.raises(SourceError, match=r"a\.parquet, row group 0: column 'at', row 1 has"):
        read(path)


@pytest.mark.parametrize("int96", [True, False])
@pytest.mark.parametrize("lossy", [0, 789])
def test_timestamps_in_lists_and_rows_too(tmp_path: Path, int96: bool, lossy: int) -> None:
    kind = pa.struct([("times", pa.list_(pa.timestamp("ns"))), ("n", pa.int64())])
    values = [{"times": [NOON_NS, None, NOON_NS + lossy], "n": 1}, None, {"times": None, "n": 2}]
    path = written(tmp_path, pa.array(values, kind), int96)
    expected = [([NOON, None, NOON], 1), None, (None, 2)]
    assert [row and tuple(row) for row in read(path, LossyTimestamps.COERCE)] == expected
    if not lossy:
        assert [row and tuple(row) for row in read(path)] == expected
        return
    for way in (LossyTimestamps.REFUSE, LossyTimestamps.NULL):
        with pytest.raises(SourceError, match="column 'at' has a timestamp .*COERCE"):
            read(path, way)


def test_instants_with_a_zone_are_in_utc(tmp_path: Path) -> None:
    path = written(tmp_path, pa.array([NOON_NS + 1], pa.timestamp("ns", "Europe/Vienna")), int96=False)
    assert read(path, LossyTimestamps.COERCE) == [NOON.replace(tzinfo=datetime.UTC)]


def test_the_way_may_be_named_by_its_text() -> None:
    assert ParquetColumnarRowInputFormat(lossy_timestamps="null")._lossy is LossyTimestamps.NULL  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="round"):
        ParquetColumnarRowInputFormat(lossy_timestamps="round")  # type: ignore[arg-type]
