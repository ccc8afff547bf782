"""Tests what is known, and refused, when a columnar operator is declared."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    OutputTag,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from penstock.datastream.columnar import count, max_, mean, min_, sum_
from penstock.graph.declared_columns import Aggregate, AggregateSpec, WindowAggregateSpec
from penstock.graph.logical import OperatorKind
from penstock.operators.windows.assigners.tumbling import Tumbling

ORDERS = Types.ROW_NAMED(
    ["user", "amount", "rate", "note", "tags", "price"],
    [
        Types.STRING(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.LIST(Types.LONG()),
        Types.BIG_DEC(),
    ],
)
MINUTE = TumblingEventTimeWindows.of(Time.minutes(1))


@pytest.fixture
def orders(env: StreamExecutionEnvironment) -> SingleOutputStreamOperator:
    return env.from_collection([], ORDERS)


def test_types_are_known_when_the_graph_is_built(orders: SingleOutputStreamOperator) -> None:
    assert orders.select("amount", "user").get_type() == Types.ROW_NAMED(
        ["amount", "user"], [Types.LONG(), Types.STRING()]
    )
    named = orders.select("price", who="user", euros=pc.field("amount") * pc.field("rate"), big=pc.field("amount") > 5)
    assert named.get_type().text == "ROW(price BIG_DEC, who STRING, euros DOUBLE, big BOOLEAN)"
    more = orders.select("user", "amount").with_columns(amount=pc.field("amount") + 1, one=pc.scalar(1), same="user")
    assert more.get_type().text == "ROW(user STRING, amount LONG, one LONG, same STRING)"
    assert orders.select(pc.field("user")).get_type() == Types.ROW_NAMED(["user"], [Types.STRING()])
    assert orders.filter(pc.field("amount") > 3).get_type() == ORDERS
    assert orders.filter(lambda row: True)._node_for("").kind is OperatorKind.FILTER


def test_map_batches_finds_its_schema_or_is_told(orders: SingleOutputStreamOperator) -> None:
    counted = orders.map_batches(lambda batch: batch.select(["user"]))
    assert counted.get_type() == Types.ROW_NAMED(["user"], [Types.STRING()])
    schema = pa.schema([("n", pa.uint8()), ("s", pa.large_string())])
    told = orders.map_batches(lambda batch: 1 / 0, schema)
    assert told.get_type().text == "ROW(n SHORT, s STRING)", "as of files: the next type that holds the values"
    pair = Types.TUPLE([Types.LONG(), Types.BIG_DEC()])
    assert orders.map_batches(lambda batch: batch, pair).get_type() == pair


def test_aggregates_have_types_and_names(orders: SingleOutputStreamOperator) -> None:
    keyed = orders.key_by("user")
    assert keyed.get_key_type() == Types.STRING()
    assert orders.key_by("user", "amount").get_key_type() == Types.TUPLE([Types.STRING(), Types.LONG()])
    assert orders.key_by("user", "amount", "rate")._partitioner.key_columns == ("user", "amount", "rate")
    made = keyed.aggregate(total=sum_("amount"), real=sum_("rate"), n=count(), least=min_("rate"), mid=mean("amount"))
    assert made.get_type().text == "ROW(user STRING, total LONG, real DOUBLE, n LONG, least DOUBLE, mid DOUBLE)"
    node = keyed.sum("amount")._node_for("")
    assert node.kind is OperatorKind.AGGREGATE_COLUMNS
    assert node.function == AggregateSpec(("user",), (Aggregate("sum_amount", "sum", "amount"),))
    assert [getattr(keyed, m)("rate").get_type().schema.names[1] for m in ("min", "max", "mean", "count")] == [
        "min_rate",
        "max_rate",
        "mean_rate",
        "count_rate",
    ]
    window = orders.key_by("user").window(MINUTE).allowed_lateness(5).side_output_late_data(OutputTag("late"))
    made = window.aggregate(most=max_("amount"))
    assert made.get_type().text == "ROW(user STRING, window_start LONG, window_end LONG, most LONG)"
    assert made._node_for("").function == WindowAggregateSpec(
        ("user",), (Aggregate("most", "max", "amount"),), Tumbling(60_000), 5, "late"
    )
    assert made.get_side_output(OutputTag("late")).get_type() == ORDERS
    assert window.count().get_type().schema.names[-1] == "count"


def test_row_functions_and_columns_follow_each_other_in_vertices_of_their_own(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    orders = env.from_collection([], ORDERS).set_max_parallelism(128)
    timed = orders.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row["amount"])
    )
    columns = timed.filter(pc.field("amount") > 0).with_columns(amount=pc.field("amount") * 2)
    columns.key_by("user").window(MINUTE).sum("amount").map(lambda row: row).sink_to(DiscardingSink())
    graph = env.get_job_graph("job")
    assert [(v.columnar, v.keyed, [o.kind.value for o in v.operators]) for v in graph.vertices] == [
        (True, False, ["source", "timestamps", "filter_columns", "project"]),
        (True, True, ["window_columns"]),
        (False, False, ["map", "sink"]),
    ]
    again = pickle.loads(cloudpickle.dumps(graph))
    assert again.vertices[1].operators[0].function == graph.vertices[1].operators[0].function
    assert str(again.vertices[0].operators[2].function.predicate) == "(amount > 0)"


COLUMNS = r"the columns are user \(string\), amount \(int64\), rate \(double\)"


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda s: s.select("nobody"), rf"select\(\): there is no column 'nobody'; {COLUMNS}"),
        (lambda s: s.select(x=pc.field("nobody") + 1), rf"there is no column 'nobody'; {COLUMNS}"),
        (lambda s: s.filter(pc.field("nobody") > 1), rf"filter\(\): there is no column 'nobody'; {COLUMNS}"),
        (lambda s: s.key_by("nobody"), rf"key_by\(\): there is no column 'nobody'; {COLUMNS}"),
        (lambda s: s.key_by("user").sum("nobody"), rf"there is no column 'nobody'; {COLUMNS}"),
        (lambda s: s.select(pc.field("amount") + 1), r"\(amount \+ 1\)|needs a name"),
        (lambda s: s.select(), "takes at least one column"),
        (lambda s: s.with_columns(), "takes at least one name=expression"),
        (lambda s: s.with_columns(x=5), r"column 'x' is a column's name or an expression \(a constant: pc.scalar"),
        (lambda s: s.select("user", user=pc.field("amount")), "the column name 'user' is there twice"),
        (lambda s: s.with_columns(__timestamp__="amount"), "'__timestamp__' is reserved"),
        (lambda s: s.with_columns(x=pc.field("amount") + pc.field("user")), "does not fit the columns .*no kernel"),
        (lambda s: s.filter(pc.field("amount") + 1), "is a condition, of type bool; it is int64"),
        (lambda s: s.key_by("user", "user"), "'user' is there twice"),
        (lambda s: s.key_by("user", Types.LONG()), "names of columns; got"),
        (lambda s: s.key_by("note"), "'note' of type PICKLED_BYTE_ARRAY cannot be a key"),
        (lambda s: s.key_by("tags"), "'tags' of type LIST.* cannot be a key"),
        (lambda s: s.key_by("price"), "'price' of type BIG_DEC cannot be a key"),
        (lambda s: s.key_by("user").sum("user"), r"sum takes columns of numbers; 'user' is STRING"),
        (lambda s: s.key_by("user").max("user"), "numbers, dates, times and timestamps; 'user' is STRING"),
        (lambda s: s.key_by("user").aggregate(), "at least one name=aggregate"),
        (
            lambda s: s.key_by("user").aggregate(x="sum"),
            "'x' is neither .* nor an aggregate .* of penstock.datastream.columnar",
        ),
        (lambda s: s.key_by("user").aggregate(user=count()), "'user' is that of a column of the key"),
        (lambda s: s.key_by("user").window(MINUTE).aggregate(window_end=count()), "column of the key or window"),
        (lambda s: s.map_batches(3), "takes a function of a pyarrow.RecordBatch, got 3"),
        (lambda s: s.map_batches(lambda b: 1 / 0), "empty batch.*ZeroDivisionError.*say schema="),
        (lambda s: s.map_batches(lambda b: None), r"must return a pyarrow.RecordBatch, it returned nothing \(None\)"),
        (lambda s: s.map_batches(lambda b: b, schema=["user"]), "schema is a pyarrow.Schema or a type made by Types"),
        (lambda s: s.map_batches(lambda b: b, schema=pa.schema([("d", pa.duration("s"))])), "no type holds .*'d'"),
        (lambda s: s.map(lambda r: r).select("x"), r"select\(\) works on columns, .*output_type=Types.ROW_NAMED"),
        (lambda s: s.map(lambda r: r).key_by("x"), "no declared type"),
        (lambda s: s.map(lambda r: r).filter(pc.field("x") > 1), "no declared type"),
        (lambda s: s.map(lambda r: r).map_batches(lambda b: b), "no declared type"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(
    orders: SingleOutputStreamOperator, declare: Callable[[SingleOutputStreamOperator], object], told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        declare(orders)


def test_one_value_is_one_column(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2], Types.LONG())
    assert numbers.filter(pc.field("value") > 1).get_type() == Types.LONG()
    assert numbers.key_by("value").count().get_type() == Types.ROW_NAMED(["value", "count"], [Types.LONG()] * 2)


def test_rolling_fields_of_rows_in_python(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([], Types.TUPLE([Types.STRING(), Types.LONG()])).key_by(lambda pair: pair[0])
    assert pairs.sum(1)._node_for("").function.reduce(("a", 2), ("b", 3)) == ("a", 5)
    assert pairs.min(1)._node_for("").function.reduce(("a", 2), ("b", 1)) == ("a", 1)
    assert pairs.max_by(1)._node_for("").function.reduce(("a", 2), ("b", 3)) == ("b", 3)
    assert pairs.min_by(1)._node_for("").function.reduce(("a", 2), ("b", 2)) == ("a", 2)
    row = Row(name="a", n=2)
    named = env.from_collection([], Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()]))
    rows = named.key_by(lambda pair: pair[0])
    assert rows.sum("n")._node_for("").function.reduce(row, Row(name="b", n=3)) == Row(name="a", n=5)
    assert row.n == 2, "the row that is kept is not changed"
    assert pairs.max()._node_for("").function.reduce(3, 4) == 4
    with pytest.raises(TypeError, match="takes a field's position or name, got None"):
        pairs.sum(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="field 'n' of a int: 3"):
        rows.sum("n")._node_for("").function.reduce(3, 4)
