"""Tests state as a DataFrame on a real Spark: checkpoints and savepoints of a real job, and state made of a
DataFrame.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.savepoints import (
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
)
from penstock.spark.state_source import NoStateSource, register_state_source
from penstock.state import read_checkpoint
from tests.spark.small_jobs import WAIT_S, committed, environment, file_sink, numbers, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("spark_session")]

HAS_SOURCES = not pyspark.__version__.startswith("3.")
KEYS = 101
ROWS = 20_000
TOTAL = ValueStateDescriptor("total", Types.LONG())


class Totals(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.STRING()))

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + row)
        self.last.update([f"n{row}", "x"])
        yield f"{ctx.get_current_key()}:{self.total.value()}"


def totals(env: StreamExecutionEnvironment, out: Path, rows: int, rows_per_second: float | None = None) -> None:
    keyed = numbers(env, rows, rows_per_second).key_by(lambda i: i % KEYS, Types.LONG())
    keyed.process(Totals(), Types.STRING()).uid("totals").sink_to(file_sink(out))


def frame(spark: SparkSession, path: str, **options: str) -> Any:
    return spark.read.format("penstock-state").option("path", path).options(**options).load()


@pytest.mark.skipif(not HAS_SOURCES, reason="PySpark 3.5 has no data sources in Python")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_state_of_a_savepoint_is_a_data_frame(spark_session: SparkSession, tmp_path: Path, codec: str) -> None:
    options = {"execution_checkpointing_snapshot__compression": codec}
    env = environment(2, **options, execution_checkpointing_dir=str(tmp_path / "checkpoints"))
    totals(env, tmp_path / "out", ROWS, 5_000.0)
    client = env.execute_async("totals")
    wait_until(
        lambda: client.report().completed >= 0 and sum(v.rows_in for v in client.report().vertices) > 500, "rows"
    )
    path = client.stop_with_savepoint(False, str(tmp_path)).result(WAIT_S)
    expected = read_checkpoint(path).keyed_state("totals", "total").table().sort_by("key")

    found = frame(spark_session, path, uid="totals", name="total", num_partitions="3")
    assert found.rdd.getNumPartitions() >= 2
    assert [(f.name, f.dataType.simpleString()) for f in found.schema] == [
        ("key", "bigint"), ("key_group", "int"), ("value", "bigint"),
    ]  # fmt: skip
    rows = sorted(tuple(row) for row in found.collect())
    assert rows == list(zip(*(column.to_pylist() for column in expected.columns))) and len(rows) > 20
    assert found.count() == len(rows)
    last = frame(spark_session, path, uid="totals", name="last", columns="value").collect()
    assert len(last) == len(rows) and all(row.value[1] == "x" for row in last)


@pytest.mark.skipif(not HAS_SOURCES, reason="PySpark 3.5 has no data sources in Python")
def test_what_is_wrong_with_the_options_is_said(spark_session: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b"], "amount": [1, 2]})
    made = OperatorTransformation.bootstrap_with(table).key_by("key").transform(Amounts())
    path = (
        SavepointWriter.new_savepoint(environment(2))
        .with_operator(OperatorIdentifier.for_uid("totals"), made)
        .write(str(tmp_path / "new"))
    )
    for options, told in (
        ({"uid": "no", "name": "total"}, "no operator with the uid 'no'; there are 'totals'"),
        ({"uid": "totals", "name": "no"}, "no keyed state 'no'"),
        ({"uid": "totals"}, "needs the option name"),
        ({"uid": "totals", "name": "total", "colums": "key"}, "do you mean columns?"),
        ({"uid": "totals", "name": "total", "key_type": "LONG"}, "is no LONG"),
    ):
        with pytest.raises(Exception, match=told.replace("?", r"\?")):
            frame(spark_session, path, **options).collect()


class Amounts(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.total.update(row.amount)


def test_a_job_starts_from_state_that_was_made_of_a_data_frame(spark_session: SparkSession, tmp_path: Path) -> None:
    rows = spark_session.range(KEYS).selectExpr("id AS user", "id * 1000 AS amount")
    made = OperatorTransformation.bootstrap_with(rows).key_by("user").transform(Amounts())
    writer = SavepointWriter.new_savepoint(environment(2)).with_operator(OperatorIdentifier.for_uid("totals"), made)
    path = writer.write(str(tmp_path / "savepoint"))
    env = environment(2, execution_state__recovery_path=path, execution_checkpointing_dir=str(tmp_path / "checkpoints"))
    totals(env, tmp_path / "out", KEYS * 2)
    env.execute_async("totals").wait(timeout_ms=int(WAIT_S * 1000))
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for line in committed(tmp_path / "out").elements():
        key, total = map(int, line.split(":"))
        found[key].append(total)
    for key, of_key in found.items():
        # Two subtasks read the two rows of a key, so either may be first.
        begun, rows_of_key = key * 1000, {key, key + KEYS}
        assert min(of_key) - begun in rows_of_key and len(of_key) == 2
        assert max(of_key) == begun + sum(rows_of_key)


@pytest.mark.skipif(HAS_SOURCES, reason="what PySpark 3.5 says")
def test_the_oldest_spark_names_the_other_way(spark_session: SparkSession) -> None:
    with pytest.raises(NoStateSource, match="read_checkpoint"):
        register_state_source(spark_session)
