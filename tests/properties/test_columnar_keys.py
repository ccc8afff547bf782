"""Keys that are columns: whatever their types, a row's key group is that of the same key by lambda, and row functions
see the same key."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.common.types import RowType, Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators.batches import wire_schema
from penstock.protocol.values.keys import key_group, key_group_range, key_hash
from penstock.runtime.output.key_columns import KeyColumns
from penstock.runtime.output.routing import create_router

VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.DOUBLE(), st.one_of(st.floats(), st.integers(-5, 5).map(float), st.just(-0.0))),
    (Types.STRING(), st.text(max_size=40)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=40)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1))),
    (Types.BIG_INT(), st.integers(-(10**30), 10**30)),
]


def edge_of(rows: RowType, columns: tuple[str, ...], parallelism: int) -> Edge:
    return Edge(0, "edge", 0, 1, 0, Partitioner(PartitionerKind.HASH, key_columns=columns), rows, 1, parallelism)


@given(data=st.data(), parallelism=st.sampled_from([1, 2, 3, 7]))
@settings(max_examples=200, deadline=None)
def test_the_key_group_is_that_of_the_same_key_by_lambda(data: st.DataObject, parallelism: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    names = tuple(f"c{i}" for i in range(len(chosen)))
    rows = RowType((Types.LONG(), *(type_info for type_info, _ in chosen)), ("nth", *names))
    drawn = data.draw(st.lists(st.tuples(*(values for _, values in chosen)), min_size=1, max_size=30))
    tuples = [(nth, *values) for nth, values in enumerate(drawn)]
    batch = pa.RecordBatch.from_arrays(rows.encode(tuples), schema=rows.schema)
    seen = [tuple(row[name] for name in names) for row in rows.decode(batch)]  # floats are rounded to their type
    expected = [values[0] if len(names) == 1 else values for values in seen]
    assert [repr(key) for key in KeyColumns(rows, names).keys(batch)] == [repr(key) for key in expected]
    edge = edge_of(rows, names, parallelism)
    found: dict[Any, int] = {}
    for consumer, part in create_router(edge, 0, 128, "op", 0).route(batch, None):
        assert part.schema.equals(wire_schema(edge))
        groups = part.column(KEY_GROUP_COLUMN).to_pylist()
        assert all(group in key_group_range(128, parallelism, consumer) for group in groups)
        found.update(zip(part.column("nth").to_pylist(), groups))
    assert found == {nth: key_group(key_hash(key), 128) for nth, key in enumerate(expected)}


@pytest.mark.parametrize("value", [3, "x", 2.5, date(2024, 1, 1), time(12), None])
def test_a_null_names_operator_column_and_row(value: Any) -> None:
    type_info = {
        int: Types.LONG(),
        str: Types.STRING(),
        float: Types.DOUBLE(),
        date: Types.SQL_DATE(),
        time: Types.SQL_TIME(),
        type(None): Types.BOOLEAN(),
    }[type(value)]
    rows = RowType((Types.STRING(), type_info), ("name", "key"))
    batch = pa.RecordBatch.from_arrays(rows.encode([("ada", value), ("bob", None)]), schema=rows.schema)
    router = create_router(edge_of(rows, ("name", "key"), 2), 0, 128, "readings", 0)
    bad = "ada" if value is None else "bob"
    with pytest.raises(OperatorFailure, match=rf"operator 'readings'.*column 'key' is null.*name='{bad}'"):
        router.route(batch, None)
