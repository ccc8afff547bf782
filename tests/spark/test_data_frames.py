"""Tests DataFrames as sources, and streams as DataFrames: every type there and back, restarts, resumption, refusals."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.common.row_types.type_information import TypeInformation
from penstock.datastream import SingleOutputStreamOperator
from penstock.datastream.connectors.base import SinkError, SourceError
from penstock.spark.frames.data_frame_origin import change, origin_of
from tests.spark.small_jobs import (
    KEPT,
    WRITES_ARROW,
    checkpoints,
    committed,
    environment,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("spark_session")]

ROWS = 2000
WRITTEN = ".txt" if WRITES_ARROW else ".parquet"
WAIT_MS = 90_000


def identity(stream: SingleOutputStreamOperator, row_type: TypeInformation | None = None) -> SingleOutputStreamOperator:
    """Pass rows through Python, so that values are decoded and encoded, too."""
    return stream.map(lambda row: row, row_type or stream.get_type())


def slowly(row: Row) -> str:
    time.sleep(0.002)
    return str(row.id)


def written(directory: Path) -> list[Path]:
    """The folders that `from_spark` has written below a checkpoint directory."""
    return sorted(directory.glob("*/data-frames/*"))


# ---- there and back ---------------------------------------------------------------------------------------------


ALL_TYPES = """
    id, id % 2 = 0 as flag, cast(id as byte) as tiny, cast(id as short) as small, cast(id as int) as number,
    cast(id / 7 as float) as single, id / 7d as double, concat('é', id) as text,
    cast(concat('b', id) as binary) as bytes, cast(id as decimal(12, 3)) as price,
    date_add(date'0001-01-01', cast(id as int)) as day,
    timestamp_ntz'1500-01-02 03:04:05.123456' as naive, array(id, null) as list, map('k', id) as dict,
    struct(id as x, array('y') as y) as record, if(id = 3, null, id) as holes
"""


def test_a_dataframe_is_written_beside_a_job_that_never_ends(
    spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[The slots of both jobs have all places of the session, and the rows wait for one behind them, for ever.]"""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    others = environment(2)
    numbers(others, 10**9, 10.0).print()
    endless = others.execute_async("endless")
    frame = spark_session.range(ROWS)
    try:
        wait_until(lambda: endless.get_job_status().result().name == "RUNNING", "the first job runs")
        with ThreadPoolExecutor() as threads:
            made = threads.submit(lambda: identity(environment(2).from_spark(frame)).to_spark(spark_session).count())
            try:
                assert made.result(WAIT_MS / 1000) == ROWS
            finally:
                endless.cancel().result(WAIT_MS / 1000)
    finally:
        endless.cancel()


def test_every_type_of_a_column_goes_in_and_comes_out_as_it_was(spark_session: SparkSession) -> None:
    frame = spark_session.range(20).selectExpr(*split_columns(ALL_TYPES))
    result = identity(environment(2).from_spark(frame)).to_spark(spark_session)
    expected, found = (sorted(f.collect(), key=lambda row: row.id) for f in (frame, result))
    assert [row.asDict(recursive=True) for row in expected] == [row.asDict(recursive=True) for row in found]
    assert result.schema.simpleString() == frame.schema.simpleString()


def test_rows_of_one_size_keep_their_values_their_nulls_and_their_order(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    columns = """
        id, id % 2 = 0 as flag, cast(id % 99 as byte) as tiny, cast(id % 99 as short) as small, float(id) as single,
        id / 7d as double, cast(id as decimal(12, 3)) as price, date_add(date'0001-01-01', cast(id as int)) as day,
        timestamp_ntz'1500-01-02 03:04:05.123456' as naive, struct(id as x, cast(null as int) as y) as record,
        if(id % 3 = 0, null, id) as holes"""
    spark_session.sparkContext.setLocalProperty("spark.sql.shuffle.partitions", "7")
    # Some messages of half a megabyte, of one file.
    frame = spark_session.range(0, 20_000, 1, 1).selectExpr(*split_columns(columns))
    env = environment(1, **checkpoints(tmp_path))
    with env.from_spark(frame).execute_and_collect() as rows:
        assert [file.suffix for folder in written(tmp_path) for file in folder.glob("part-*")] == [WRITTEN]
        found = list(rows)
    assert spark_session.sparkContext.getLocalProperty("spark.sql.shuffle.partitions") == "7"
    spark_session.sparkContext.setLocalProperty("spark.sql.shuffle.partitions", None)  # type: ignore[arg-type]
    expected = [row.asDict(recursive=True) for row in frame.collect()]
    assert [row.as_dict(True) for row in found] == expected


def split_columns(text: str) -> list[str]:
    depth, columns = 0, [""]
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            columns.append("")
        else:
            columns[-1] += letter
    return columns


def test_rows_have_instants_in_utc_and_decimals(spark_session: SparkSession) -> None:
    zone = spark_session.conf.get("spark.sql.session.timeZone")
    spark_session.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert zone is not None
    try:
        frame = spark_session.sql("select timestamp'2020-07-01 12:00:00' as at, cast(1.50 as decimal(9, 2)) as price")
        with environment(1).from_spark(frame).execute_and_collect() as rows:
            assert [(row.at, row.price) for row in rows] == [
                (datetime.datetime(2020, 7, 1, 16, tzinfo=datetime.UTC), decimal.Decimal("1.50"))
            ]
        assert spark_session.conf.get("spark.sql.parquet.outputTimestampType") == "INT96", "the user's setting is back"
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", zone)


def test_a_frame_without_rows_is_a_stream_without_rows_and_back(spark_session: SparkSession) -> None:
    result = identity(environment(2).from_spark(spark_session.range(0))).to_spark()
    assert (result.count(), result.columns) == (0, ["id"])


@pytest.mark.parametrize(
    ("rows", "columns", "splits_of"),
    [
        pytest.param(
            2_000_000,
            ["id", "hash(id) as h"],
            lambda f: f.stat().st_size // (8 << 20) + 1,
            marks=pytest.mark.skipif(not WRITES_ARROW, reason="written as Parquet"),
        ),
        (400_000, ["concat(sha2(hex(id), 512), sha2(hex(-id), 512)) as id"], lambda f: ParquetFile(f).num_row_groups),
    ],
    ids=["arrow", "parquet"],
)
def test_one_partition_is_shared_by_all_slots(
    spark_session: SparkSession, tmp_path: Path, rows: int, columns: list[str], splits_of: Callable[[Path], int]
) -> None:
    frame = spark_session.range(0, rows, 1, 1).selectExpr(*columns)
    env = environment(2, **checkpoints(tmp_path, **KEPT))
    env.from_spark(frame).map(slowly, Types.STRING()).filter(lambda _: False).print()
    client = env.execute_async("split")
    wait_until(lambda: client.report().completed >= 1, "a checkpoint")
    [folder] = written(tmp_path)
    splits = [splits_of(file) for file in folder.glob("part-*")]
    client.cancel().result(WAIT_MS / 1000)
    assert sum(splits) >= 3


# ---- files ------------------------------------------------------------------------------------------------------


def test_after_a_restart_and_a_resumption_rows_come_once_and_the_frame_is_computed_once(
    spark_session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computed = spark_session.sparkContext.accumulator(0)

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    frame = spark_session.range(ROWS).mapInArrow(count, "id long")
    kept, output = tmp_path / "checkpoints", tmp_path / "output"
    env = environment(2, **checkpoints(kept, **KEPT), **restarts(10))
    env.from_spark(frame, name="orders").uid("orders").map(slowly, Types.STRING()).sink_to(file_sink(output))
    client = env.execute_async("first")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    os.kill(client.report().slot_pids[0], signal.SIGKILL)
    wait_until(lambda: client.report().restarts and client.report().state == "RUNNING", "a restart")
    client.cancel().result(WAIT_MS / 1000)
    before = written(kept)
    assert len(before) == 1
    assert computed.value == ROWS

    [job] = kept.iterdir()
    resumed = {**checkpoints(kept, **KEPT), "execution_state__recovery_path": str(job)}
    with_other_columns = environment(2, **resumed)
    changed = with_other_columns.from_spark(frame.selectExpr("id", "id as other"), name="orders").uid("orders")
    changed.map(slowly, Types.STRING()).sink_to(file_sink(output))
    with pytest.raises(SourceError, match=r"'orders': the DataFrame has changed.*ROW\(id LONG\).*other LONG"):
        with_other_columns.execute("changed")
    assert written(kept) == before
    with_other_rows = environment(2, **resumed)
    changed = with_other_rows.from_spark(frame.filter("id > 0"), name="orders").uid("orders")
    changed.map(slowly, Types.STRING()).sink_to(file_sink(output))
    with pytest.raises(SourceError, match="'orders': the DataFrame has changed: .*Filter.*ignore-changes"):
        with_other_rows.execute("changed")
    assert written(kept) == before

    resumed["penstock_data__frames_ignore__changes"] = "true"
    env = environment(2, **resumed)
    same_rows = frame.filter("id >= 0")
    env.from_spark(same_rows, name="orders").uid("orders").map(slowly, Types.STRING()).sink_to(file_sink(output))
    capsys.readouterr()
    env.execute_async("second").wait(WAIT_MS)
    said = rf"penstock: operator 'Source: orders': the job goes on with the DataFrame's rows of 2.*, in {before[0]};"
    assert len(re.findall(said, capsys.readouterr().err)) == 1, "whose content counts is told, by name"
    assert computed.value == ROWS, "it was not computed again"
    assert committed(output) == {str(number): 1 for number in range(ROWS)}
    assert written(kept) == [], "no checkpoint needs them any more"


def test_a_change_of_query_files_or_rows_is_noticed_and_named(spark_session: SparkSession, tmp_path: Path) -> None:
    files = str(tmp_path / "files")
    spark_session.range(9).write.parquet(files)

    def read() -> DataFrame:
        return spark_session.read.parquet(files)

    def local(number: int) -> DataFrame:
        return spark_session.createDataFrame([(number, "a")], "id long, name string")

    def same(one: DataFrame, other: DataFrame) -> str | None:
        return change(json.loads(json.dumps(origin_of(one))), origin_of(other))

    joined = read().join(local(1), "id").filter("id > 5")
    assert same(joined, read().join(local(1), "id").filter("id > 5")) is None
    assert same(read().filter("id > 5"), read().filter("id > 6")) == (
        "its query has changed: it had 'Filter (id#0L > cast(5 as bigint))' where it has "
        "'Filter (id#0L > cast(6 as bigint))' now"
    )
    assert same(local(1), local(2)) == "the rows that the program passes to createDataFrame() are others"
    assert same(spark_session.sql("values (1), (2)"), spark_session.sql("values (1), (3)")) is not None
    random = read().selectExpr("id", "rand() as chance")
    assert same(random, read().selectExpr("id", "rand() as chance")) is None, "each evaluation differs anyway"

    before = read()
    spark_session.range(3).coalesce(1).write.mode("append").parquet(files)
    more, fewer = same(before, read()), same(read(), before)
    assert more and re.fullmatch(r"it reads 1 file\(s\) that it did not read then, such as .*\.parquet", more)
    assert fewer and re.fullmatch(r"it read .*\.parquet, and does not any more", fewer)
    before = read()
    one = min((tmp_path / "files").glob("*.parquet"))
    os.utime(one, (1, 1))
    assert same(before, read()) == f"{one.as_uri().replace('///', '/')} has changed since"


def test_without_a_checkpoint_directory_the_files_are_temporary(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other programs have temporary files, too

    def there() -> set[Path]:
        return set(tmp_path.glob("penstock-data-frames-*/data-frames/*"))

    env = environment(2)
    env.from_spark(spark_session.range(ROWS)).map(slowly, Types.STRING()).filter(lambda _: False).print()
    client = env.execute_async("temporary")
    assert len(there()) == 1
    client.wait(WAIT_MS)
    assert there() == set()


# ---- refusals ---------------------------------------------------------------------------------------------------


def test_what_is_no_frame_of_a_batch_query_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    env = environment(1)
    with pytest.raises(TypeError, match=r"takes a pyspark.sql.DataFrame, got a builtins.list"):
        env.from_spark([1, 2])
    with pytest.raises(TypeError, match="streaming DataFrame has no end"):
        env.from_spark(spark_session.readStream.format("rate").load())


def test_a_column_whose_type_has_no_twin_is_named(spark_session: SparkSession) -> None:
    frame = spark_session.sql("select 1 as a, array(interval '1' month) as pause")
    with pytest.raises(TypeError, match=r"column 'pause\[\]' is Spark's interval month.*cast it"):
        environment(1).from_spark(frame)
    with pytest.raises(TypeError, match="column name 'a' occurs 2 times"):
        environment(1).from_spark(spark_session.sql("select 1 as a, 2 as a"))


def test_a_frame_that_cannot_be_written_brings_sparks_error_and_leaves_nothing(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    env = environment(2, **checkpoints(tmp_path))
    frame = spark_session.range(10).selectExpr("if(id = 5, raise_error('row 5 is bad'), id) as x")
    env.from_spark(frame, name="ratios").print()
    with pytest.raises(SourceError, match="'ratios': the DataFrame could not be written to .*row 5 is bad") as raised:
        env.execute("fails")
    assert "row 5 is bad" in str(raised.value.__cause__)
    assert written(tmp_path) == []


def test_slots_start_while_spark_writes_and_end_when_it_cannot(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # of the session's 4 places, 2 are enough for writing
    gate = str(tmp_path / "gate")

    def fails_behind_the_gate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + 60
        while not os.path.exists(gate) and time.monotonic() < deadline:
            time.sleep(0.01)
        raise ValueError("these rows cannot be computed")
        yield from batches

    def jobs() -> int:
        return len(spark_session.sparkContext.statusTracker().getActiveJobsIds())

    env = environment(2, **checkpoints(tmp_path / "checkpoints"))
    frame = spark_session.range(10, numPartitions=1).mapInArrow(fails_behind_the_gate, "id long")
    env.from_spark(frame, name="doomed").print()
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(env.execute, "fails")
        wait_until(lambda: jobs() == 3, "the write and two slots")
        Path(gate).touch()
        with pytest.raises(SourceError, match="'doomed': the DataFrame could not be written") as raised:
            running.result(90)
    said = str(raised.value).splitlines()
    assert said[:2] == ["Traceback (most recent call last):", said[1]]
    assert re.fullmatch(rf'  File "{__file__}", line \d+, in fails_behind_the_gate', said[1])
    assert "ValueError: these rows cannot be computed" in said
    assert said[-1].endswith(": ValueError: these rows cannot be computed")
    wait_until(lambda: jobs() == 0, "the slots' end", 20)
    assert written(tmp_path / "checkpoints") == []


def test_spark_writes_before_slots_that_take_every_place(spark_session: SparkSession) -> None:
    env = environment(4)
    frame = spark_session.range(ROWS).repartition(3)
    assert env.from_spark(frame).map(lambda row: row.id, Types.LONG()).to_spark(spark_session).count() == ROWS


def test_a_stream_without_end_is_no_frame(spark_session: SparkSession) -> None:
    env = environment(1)
    from penstock.datastream.connectors.datagen import DataGeneratorSource

    endless = DataGeneratorSource(lambda i: i, None, type_info=Types.LONG())
    stream = env.from_source(endless, WatermarkStrategy.no_watermarks(), "clicks")
    with pytest.raises(ValueError, match="'Source: clicks' has none: write to a sink instead"):
        stream.to_spark()


def test_results_do_not_mix_with_what_is_there(spark_session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "results"
    assert numbers(environment(1), 5).to_spark(path=str(path)).count() == 5
    with pytest.raises(SinkError, match="would be read as if it were this job's"):
        numbers(environment(1), 5).to_spark(path=str(path))


def test_a_job_that_fails_gives_no_frame(spark_session: SparkSession) -> None:
    def fail(number: int) -> None:
        raise ValueError(f"row {number} is bad")

    with pytest.raises(JobExecutionError, match="row 0 is bad"):
        numbers(environment(1), 5).map(fail, Types.LONG()).to_spark()
