"""Tests a method that another stream has, or that is written in another way: the error says so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.common import Duration, Encoder, Time, Types, WatermarkStrategy
from penstock.connectors.formats.parquet.parquet import ParquetColumnarRowInputFormat
from penstock.datastream import (
    EventTimeSessionWindows,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
)
from penstock.datastream.columnar import count, sum_
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema

ORDERS = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
MINUTE = TumblingEventTimeWindows.of(Time.minutes(1))


@pytest.fixture
def orders(env: StreamExecutionEnvironment) -> SingleOutputStreamOperator:
    return env.from_collection([], ORDERS).name("Orders")


@pytest.fixture
def untyped(env: StreamExecutionEnvironment) -> SingleOutputStreamOperator:
    return env.from_collection([1]).map(lambda x: x).name("Guess")


def says(kind: type[Exception], *parts: str) -> pytest.RaisesExc[Exception]:
    return pytest.raises(kind, match=".*".join(parts))


@pytest.mark.parametrize("method", ["window", "reduce", "sum", "min", "max", "min_by", "max_by"])
def test_what_keyed_streams_have(
    orders: SingleOutputStreamOperator, untyped: SingleOutputStreamOperator, method: str
) -> None:
    with says(
        AttributeError,
        rf"^{method}\(\) belongs to keyed streams",
        "operator 'Orders' is not keyed",
        r"key_by\(\) before it",
        r"stream\.key_by\('user'\)\." + method,
    ):
        getattr(orders, method)
    with says(AttributeError, "operator 'Guess' is not keyed", r"stream\.key_by\(lambda row: \.\.\.\)\." + method):
        getattr(untyped, method)
    assert hasattr(orders.key_by("user"), method) and hasattr(orders.key_by(lambda row: row["user"]), method)
    assert not hasattr(orders, method)


@pytest.mark.parametrize("method", ["aggregate", "count", "mean"])
def test_what_streams_have_that_are_keyed_by_columns(
    orders: SingleOutputStreamOperator, untyped: SingleOutputStreamOperator, method: str
) -> None:
    with says(AttributeError, "keyed by columns", "'Orders' is not keyed", r"stream\.key_by\('user'\)\." + method):
        getattr(orders, method)
    with says(AttributeError, "keyed by columns", "'Orders' is keyed by a selector", r"key_by\('user'\)\." + method):
        getattr(orders.key_by(lambda row: row["user"]), method)
    with says(AttributeError, "'Guess' is keyed by a selector", "no columns yet", "output_type"):
        getattr(untyped.key_by(lambda x: x), method)
    with says(AttributeError, "union of 'Guess' and 'Source: Collection Source' is not keyed"):
        getattr(untyped.union(orders.get_execution_environment().from_collection([1])), method)
    assert hasattr(orders.key_by("user"), method)


def test_windows_of_streams_that_are_keyed_by_a_selector(orders: SingleOutputStreamOperator) -> None:
    windows = orders.key_by(lambda row: row["user"]).window(MINUTE)
    for method in ("sum", "count", "min", "max", "mean"):
        with says(AttributeError, rf"^{method}\(\)", "'Orders' is keyed by a selector", r"key_by\('user'\)\.window"):
            getattr(windows, method)
        assert hasattr(orders.key_by("user").window(MINUTE), method)
    for unnamed, named in (([], {"total": sum_("amount")}), ([sum_("amount")], {})):
        with says(TypeError, "'Orders' is keyed by a selector", r"\.aggregate\(total=sum_\('amount'\)\)"):
            windows.aggregate(*unnamed, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["user", lambda row: row["user"]])
def test_arguments_that_are_no_aggregates(orders: SingleOutputStreamOperator, key: Any) -> None:
    windows = orders.key_by(key).window(MINUTE)
    for given in ("count", count):
        with says(TypeError, r"'n' is neither one of its arguments nor", r"made by sum_\(\)", "e.g. total=sum_"):
            windows.aggregate(n=given)


def test_built_in_aggregates_have_no_sessions(orders: SingleOutputStreamOperator) -> None:
    with says(TypeError, "no sessions yet", "AggregateFunction"):
        orders.key_by("user").window(EventTimeSessionWindows.with_gap(Duration.of_minutes(1))).aggregate(n=count())


def test_aggregates_need_names(orders: SingleOutputStreamOperator) -> None:
    with says(TypeError, "needs a name", r"aggregate\(sum_amount=sum_\('amount'\)\)"):
        orders.key_by("user").aggregate(sum_("amount"))
    with says(TypeError, "needs a name", r"aggregate\(count=count\(\)\)"):
        orders.key_by("user").window(MINUTE).aggregate(count())
    with says(TypeError, "takes name=aggregate", r"reduce\(\)"):
        orders.key_by("user").aggregate(lambda a, b: a)


def test_rolling_fields_are_checked_where_they_are_known(orders: SingleOutputStreamOperator) -> None:
    keyed = orders.key_by(lambda row: row["user"])
    for wrong in ("amont", 2, -1):
        with says(ValueError, r"sum\(\): there is no field", "the fields are user, amount"):
            keyed.sum(wrong)
    keyed.sum("amount"), keyed.sum(1)
    pairs = orders.map(tuple, Types.TUPLE([Types.STRING(), Types.LONG()])).key_by(lambda pair: pair[0])
    for wrong in ("amount", 2, -1):
        with says(ValueError, r"min_by\(\): there is no field", "the fields are f0, f1"):
            pairs.min_by(wrong)
    assert pairs.sum("f1")._node_for("").function.reduce(("a", 2), ("a", 3)) == ("a", 5)


def test_a_window_of_all_rows_is_named(orders: SingleOutputStreamOperator) -> None:
    with says(AttributeError, "call key_by", r"windows of all rows, in one subtask, are window_all\(\.\.\.\)"):
        orders.window(MINUTE)  # type: ignore[attr-defined]


def test_conditions_that_are_no_functions(orders: SingleOutputStreamOperator) -> None:
    with says(TypeError, r"filter\(\)", r"'amount >= 10'", r'filter\(pc\.field\("amount"\) >= 10\)', r"lambda row:"):
        orders.filter("amount >= 10")
    with says(TypeError, r'pc\.field\("user"\) == \'x\'\)'):
        orders.key_by("user").filter("user = 'x'")
    with says(TypeError, r'filter\(pc\.field\("a"\) > 1\), with import pyarrow\.compute as pc'):
        orders.filter("user is not null")


def test_expressions_where_a_function_or_a_name_is_needed(orders: SingleOutputStreamOperator) -> None:
    with says(TypeError, r"map\(\)", r"with_columns\(name=expression\)"):
        orders.map(pc.field("amount"))
    with says(TypeError, "needs a name", r"more=pc\.field\('amount'\) \+ 1", r"with_columns\(more=\.\.\.\)"):
        orders.select(pc.field("amount") + 1)
    with says(TypeError, "one by one", r"select\('user', 'amount'\)"):
        orders.select(["user", "amount"])
    with says(TypeError, r"got 3"):
        orders.select(3)
    with says(TypeError, r"goes to map\(\)"):
        orders.with_columns(more=lambda row: 1)
    with says(TypeError, r"write key_by\('user', 'amount'\)"):
        orders.key_by(["user", "amount"])  # type: ignore[call-overload]
    with says(TypeError, r"with_columns\(key=<expression>\)\.key_by\('key'\)"):
        orders.key_by(pc.field("amount"))


def test_other_ways_and_plain_mistakes(orders: SingleOutputStreamOperator, untyped: SingleOutputStreamOperator) -> None:
    with says(AttributeError, r"no groupBy\(\)", "key_by"):
        orders.groupBy("user")  # type: ignore[attr-defined]
    with says(AttributeError, r"no filter\(\)", "CoMapFunction"):
        orders.connect(untyped).filter(lambda row: True)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'ConnectedStreams' object has no attribute 'keyby'; .*'key_by'"):
        orders.connect(untyped).keyby  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="^'SingleOutputStreamOperator' .* 'fliter'; did you mean 'filter'\\?$"):
        orders.fliter  # type: ignore[attr-defined]  # noqa: B018


# ---- what cannot be called as it will be, or is not finished --------------------------------------------------------


class WithoutKey(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    def process(self, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]) -> Iterable[Any]:  # type: ignore[override]
        return []


class WithoutContext(KeyedProcessFunction):
    def process_element(self, value: Any) -> Iterable[Any]:  # type: ignore[override]
        return []


@pytest.mark.parametrize("declare, says", [
    (lambda s: s.map(lambda: 1), r"map\(\) calls .*<lambda> with \(value\), and it is defined with \(\): too many"),
    (lambda s: s.filter(lambda a, b: 1), r"filter\(\) calls .*<lambda> with \(value\), .* missing a required argument"),
    (lambda s: s.key_by(lambda: 1), r"key_by\(\) calls .* with \(row\)"),
    (lambda s: s.key_by("user").reduce(lambda a: a), r"reduce\(\) calls .*<lambda> with \(value1, value2\), .*\(a\)"),
    (lambda s: s.key_by("user").process(WithoutContext()), r"WithoutContext\.process_element with \(value, ctx\)"),
    (lambda s: s.key_by(str).window(MINUTE).process(WithoutKey()), r"process\(\) calls WithoutKey\.process with \(key, "
     r"context, elements\), and it is defined with \(context, elements\)"),
    (lambda s: s.partition_custom(lambda key: 0, lambda row: 0), r"partition_custom\(\) calls .*number of partitions"),
    (lambda s: WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: 1),  # type: ignore[arg-type, misc]
     r"with_timestamp_assigner\(\) calls .*<lambda> with \(value, record timestamp\), and it is defined with \(row\)"),
])  # fmt: skip
def test_functions_of_other_parameters(
    orders: SingleOutputStreamOperator, declare: Callable[[SingleOutputStreamOperator], object], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        declare(orders)


def test_functions_that_take_what_they_are_given_or_do_not_say(orders: SingleOutputStreamOperator) -> None:
    for function in (str, print, int, lambda *all: 1, lambda row, more=1: 1, functools.partial(max, 1)):
        orders.map(function)
    orders.key_by("user").reduce(max)
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, *more: 1)


def test_builders_and_types_that_are_not_finished(
    env: StreamExecutionEnvironment, orders: SingleOutputStreamOperator
) -> None:
    builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(ORDERS), "nowhere")
    with says(TypeError, "takes a Source", r"call build\(\) on it"):
        env.from_source(builder, WatermarkStrategy.no_watermarks(), "files")
    with says(TypeError, "takes a Sink", r"call build\(\) on it"):
        orders.sink_to(FileSink.for_row_format("nowhere", Encoder.simple_string_encoder()))
    with says(TypeError, r"for_schema\(\) takes a CsvSchema", r"call build\(\) on it"):
        CsvReaderFormat.for_schema(CsvSchema.builder().add_string_column("user"))  # type: ignore[arg-type]
    with says(TypeError, "operator 'Map'", r"call it: Types\.LONG\(\.\.\.\)"):
        orders.map(str, Types.LONG)  # type: ignore[call-overload]
    with says(SourceError, "got a dict", r"Row\(\*\*fields\)"):
        env.from_collection([{"name": "a", "sum": 1}], ORDERS)


def test_columns_that_are_keys_of_two_types(orders: SingleOutputStreamOperator) -> None:
    with says(TypeError, "got STRING and LONG", r"with_columns\(id=pc\.field\('id'\)\.cast\('string'\)\)"):
        orders.connect(orders).key_by("user", "amount").process(Both())


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        return None

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        return None
