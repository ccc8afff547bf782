"""Tests columnar jobs that fail: the error names operator, column, row or key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Time
from penstock.datastream import CoMapFunction, StreamExecutionEnvironment
from penstock.datastream.columnar import min_, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.protocol.values.elements import Generation
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_columnar_jobs import EVENTS, Build, small_batches_are_added_up, source
from tests.unit.runtime.jobs.test_small_jobs import SMALL, finish, run_with_checkpoint

__all__ = ["small_batches_are_added_up"]  # a fixture for all tests here


def run_failing(build: Build) -> OperatorFailure:
    with pytest.raises(OperatorFailure) as raised:
        finish(SmallJob(graph_of(build, 1), Configuration(SMALL)), 1)
    return raised.value


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda b: None, "nothing (None)"),
        (lambda b: [1], "a builtins.list"),
        (lambda b: b.select(["user"]), "column 'value': expected int64, found no such column"),
        (lambda b: b.append_column("more", b.column(1)), "column 'more': expected no such column, found int64"),
        (lambda b: b.set_column(1, "value", b.column(1).cast(pa.float64())), "column 'value': expected int64, found"),
    ],
)
def test_a_function_that_returns_something_else_than_declared_is_named(returned: Any, told: str) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        made = (
            source(env, False)
            .select("user", "value")
            .map_batches(
                lambda b: returned(b) if b.num_rows else b,
                schema=pa.schema([("user", pa.string()), ("value", pa.int64())]),
            )
        )
        made.name("my batches").sink_to(CommittedRows())

    error = run_failing(build)
    assert "operator 'my batches'" in str(error) and told in str(error)
    assert error.user_traceback() == ""


def test_what_a_batch_function_raises_comes_with_its_traceback() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        source(env, False).map_batches(lambda b: b if not b.num_rows else 1 / 0).sink_to(CommittedRows())

    error = run_failing(build)
    assert isinstance(error.error, ZeroDivisionError) and "1 / 0" in error.user_traceback()


def test_a_null_in_a_key_column_names_operator_column_and_row() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        source(env, False).select("value", "at").name("chosen").key_by("value").count().sink_to(CommittedRows())

    told = str(run_failing(build))
    assert "operator 'chosen'" in told and "column 'value' is null" in told and "the row was" in told and "at=" in told


@pytest.mark.parametrize("windowed", [False, True])
def test_a_sum_that_leaves_64_bits_names_operator_column_and_key(windowed: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = source(env, True).with_columns(value=pc.field("at") * 0 + (1 << 62))
        keyed = stream.key_by("user")
        per_window = keyed.window(TumblingEventTimeWindows.of(Time.seconds(100)))
        made = per_window.sum("value") if windowed else keyed.sum("value")
        made.name("too much").sink_to(CommittedRows())

    told = str(run_failing(build))
    assert "operator 'too much'" in told and "sum('value')" in told and "user = 'user" in told and "64 bits" in told


class FromBoth(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def test_rows_without_event_time_belong_to_no_window() -> None:
    """Names the operator: of a union before it runs, of what a function of two inputs puts out, when it has done so."""

    def build(env: StreamExecutionEnvironment) -> None:
        both = source(env, False).connect(source(env, True)).map(FromBoth(), EVENTS)
        keyed = both.key_by("user").window(TumblingEventTimeWindows.of(Time.seconds(1)))
        keyed.count().name("per second").sink_to(CommittedRows())

    told = str(run_failing(build))
    assert "operator 'per second'" in told and "assign_timestamps_and_watermarks" in told


def test_a_state_that_was_declared_otherwise_is_refused_by_name() -> None:
    def build(aggregates: Any) -> Build:
        def of(env: StreamExecutionEnvironment) -> None:
            made = source(env, False).key_by("user").aggregate(**aggregates)
            made.name("totals").uid("totals").sink_to(CommittedRows()).uid("sink")

        return of

    job = SmallJob(graph_of(build({"a": sum_("value")}), 1), Configuration(SMALL))
    done = run_with_checkpoint(job, 30, None)
    with pytest.raises(
        Exception,
        match=r"of operator 'totals' \(uid 'totals'\) is .*'a' was kept as .*another uid",
    ):
        SmallJob(
            graph_of(build({"a": min_("value")}), 1),
            Configuration(SMALL),
            job.store,
            restored=done.metadata,
            generation=Generation(1, 1),
        )
