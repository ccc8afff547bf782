"""Tests built-in aggregates against plain Python, over batches with any borders; and expressions that keep event
time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN, TIMESTAMP_COLUMN
from penstock.common.types import Types
from penstock.graph.declared_columns import (
    Aggregate,
    AggregateSpec,
    FilterSpec,
    MapBatchesSpec,
    ProjectSpec,
    WindowAggregateSpec,
)
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import TIMESTAMP_FIELD
from penstock.operators.columns.columnar_chain import ROWS_PER_FIRED_GROUP, ColumnarChain
from penstock.operators.columns.columnar_functions import columnar_operators
from penstock.operators.windows.assigners.tumbling import Tumbling
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.metadata import GroupFloor
from penstock.state.backend import EncodedState
from penstock.state.columnar.columnar_backend import ColumnarBackend, ColumnarStateBackend
from tests.properties.columnar_backends import KINDS, ColumnarBackends

ROW = Types.ROW_NAMED(
    ["key", "whole", "real", "at"], [Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.SQL_TIMESTAMP()]
)
AGGREGATES = (
    Aggregate("rows", "count", None), Aggregate("there", "count", "whole"), Aggregate("sum", "sum", "whole"),
    Aggregate("real sum", "sum", "real"), Aggregate("least", "min", "whole"), Aggregate("most", "max", "real"),
    Aggregate("first", "min", "at"), Aggregate("mean", "mean", "whole"),
)  # fmt: skip
RESULTS = [Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG(), Types.DOUBLE(),
           Types.SQL_TIMESTAMP(), Types.DOUBLE()]  # fmt: skip
ROLLED = Types.ROW_NAMED(["key", *(a.name for a in AGGREGATES)], [Types.LONG(), *RESULTS])
WINDOWED = Types.ROW_NAMED(
    ["key", "window_start", "window_end", *(a.name for a in AGGREGATES)], [Types.LONG()] * 3 + RESULTS
)
WIRE = ROW.schema.append(TIMESTAMP_FIELD).append(pa.field(KEY_GROUP_COLUMN, pa.uint16()))
SIZE_MS = 10

Event = tuple[int, Any, Any, Any, int]
"""key, whole, real, at, event time"""


def chain_of(kind: OperatorKind, spec: Any, output_type: Any, backend: ColumnarBackend[Any] | None = None) -> Any:
    operator = Operator("uid", "the operator", kind, spec, ROW, output_type, timestamped=True)
    vertex = Vertex(0, "vertex", 1, 128, (operator,), keyed=kind.keyed)
    chain = ColumnarChain(vertex, columnar_operators(vertex, backend or ColumnarStateBackend()), lambda: 0.0)
    chain.open()
    return chain


def batch_of(events: list[Event]) -> pa.RecordBatch:
    keys, wholes, reals, ats, times = zip(*events)
    groups = [key % 8 for key in keys]
    arrays = [pa.array(column, type.type) for column, type in zip((keys, wholes, reals, ats, times, groups), WIRE)]
    return pa.RecordBatch.from_arrays(arrays, schema=WIRE)


def random_events(random: Random, count: int, keys: int, nulls: float) -> list[Event]:
    def some(value: Any) -> Any:
        return None if random.random() < nulls else value

    return [
        (
            random.randrange(keys),
            some(random.randrange(-50, 50)),
            some(random.choice([0.1, -3.5, 1e300, 7.25])),
            some(random.randrange(10**15)),
            random.randrange(60) + nth // 2,
        )
        for nth in range(count)
    ]


def expected(events: list[Event]) -> tuple[Any, ...]:
    wholes = [e[1] for e in events if e[1] is not None]
    reals = [e[2] for e in events if e[2] is not None]
    ats = [e[3] for e in events if e[3] is not None]
    total = 0.0
    for real in reals:
        total += real
    return (
        len(events), len(wholes), sum(wholes) if wholes else None, total if reals else None, min(wholes, default=None),
        max(reals, default=None), min(ats, default=None), sum(wholes) / len(wholes) if wholes else None,
    )  # fmt: skip


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    rows = []
    for batch in batches:
        columns = [
            c.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(c.type) else c.to_pylist() for c in batch.columns
        ]
        rows += list(zip(*columns))
    return rows


def cut(random: Random, events: list[Event]) -> list[list[Event]]:
    at, parts = 0, []
    while at < len(events):
        size = random.choice([1, 2, 7, 60, 400])
        parts.append(events[at : at + size])
        at += size
    return parts


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_rolling_aggregates_are_those_of_the_rows_so_far(kind: str, seed: int) -> None:
    with ColumnarBackends(kind) as backends:
        check_rolling(Random(seed), backends)


def check_rolling(random: Random, backends: ColumnarBackends) -> None:
    keys = random.choice([1, 2, 10, 500])
    events = random_events(random, random.randrange(1, 600), keys, random.choice([0, 0, 0.1, 0.9]))
    chain = chain_of(OperatorKind.AGGREGATE_COLUMNS, AggregateSpec(("key",), AGGREGATES), ROLLED, backends.new())
    made = [batch for part in cut(random, events) for tag, batch in chain.run(batch_of(part))]
    assert made[0].schema.equals(ROLLED.schema.append(TIMESTAMP_FIELD))
    so_far: dict[int, list[Event]] = defaultdict(list)
    wanted = []
    for event in events:
        so_far[event[0]].append(event)
        wanted.append((event[0], *expected(so_far[event[0]]), event[4]))
    assert rows_of(made) == wanted


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), lateness_ms=st.sampled_from([0, 0, 7, 25, WATERMARK_MAX_MS]))
@settings(max_examples=30, deadline=None)
def test_windows_fire_once_for_rows_in_time_and_again_for_late_ones(kind: str, seed: int, lateness_ms: int) -> None:
    with ColumnarBackends(kind) as backends:
        check_windows(Random(seed), lateness_ms, backends)


def check_windows(random: Random, lateness_ms: int, backends: ColumnarBackends) -> None:
    events = random_events(random, random.randrange(1, 500), random.choice([1, 4, 60]), random.choice([0, 0.2]))
    offset_ms = random.choice([0, 3, -4])
    spec = WindowAggregateSpec(("key",), AGGREGATES, Tumbling(SIZE_MS, offset_ms), lateness_ms, None)
    backend = backends.new()
    chain = chain_of(OperatorKind.WINDOW_COLUMNS, spec, WINDOWED, backend)
    reached = -1
    put_out: dict[Any, Any] = {}
    wanted: dict[Any, Any] = {}
    open_rows: dict[tuple[int, int], list[Event]] = defaultdict(list)
    dropped = 0
    for part in cut(random, events):
        seen = {}
        for event in part:
            start = event[4] - (event[4] - offset_ms) % SIZE_MS
            if start + SIZE_MS - 1 + lateness_ms <= reached:
                dropped += 1
                continue
            open_rows[event[0], start].append(event)
            if start + SIZE_MS - 1 <= reached:
                seen[event[0], start] = True
        for key, start in seen:
            wanted.setdefault((key, start), []).append((start + SIZE_MS, *expected(open_rows[key, start])))
        collect(chain.run(batch_of(part)), put_out)
        if random.random() < 0.6:
            before, reached = reached, reached + random.randrange(1, 15)
            fire(open_rows, before, reached, lateness_ms, wanted)
            collect(chain.on_watermark(reached), put_out)
        if random.random() < 0.3:
            backend, chain = restored(backend, spec, backends)
            chain.set_time(reached, [])
            chain._operators[0].late_rows = dropped
    fire(open_rows, reached, WATERMARK_MAX_MS, lateness_ms, wanted)
    collect(chain.on_watermark(WATERMARK_MAX_MS), put_out)
    assert put_out == wanted
    assert chain.late_rows == dropped
    is_kept_for_ever = lateness_ms == WATERMARK_MAX_MS
    kept = list(encoded(backend))
    assert bool(kept) == is_kept_for_ever, "what has fired is gone"


def fire(rows: dict[Any, list[Event]], before: int, reached: int, lateness_ms: int, wanted: dict[Any, Any]) -> None:
    for (key, start), events in list(rows.items()):
        due = start + SIZE_MS - 1
        if before < due <= reached:
            wanted.setdefault((key, start), []).append((start + SIZE_MS, *expected(events)))
        if due + lateness_ms <= reached:
            del rows[key, start]


def collect(outputs: Any, put_out: dict[Any, Any]) -> None:
    for tag, batch in outputs:
        assert tag is None and batch.num_rows <= ROWS_PER_FIRED_GROUP
        for row in rows_of([batch]):
            assert row[-1] == row[2] - 1, "a window's rows have its last millisecond as their time"
            put_out.setdefault(row[:2], []).append(row[2:-1])


def encoded(backend: ColumnarBackend[Any]) -> Iterator[EncodedState]:
    for run in backend.snapshot().encode():
        assert isinstance(run, EncodedState)
        yield run


def restored(backend: ColumnarBackend[Any], spec: Any, backends: ColumnarBackends) -> Any:
    parts = [(p.operator, p.name, b"".join(bytes(x) for x in p.parts)) for p in encoded(backend)]
    again = backends.new()
    for operator, name, data in parts:
        again.restore(operator, name, data, range(128))
    return again, chain_of(OperatorKind.WINDOW_COLUMNS, spec, WINDOWED, again)


@pytest.mark.parametrize("at", [-(2**63), 3 - 2**63, 2**63 - 1, 2**63 - 3])
@pytest.mark.parametrize("others", [[], [(2, 1, None, None, 0)]])
def test_a_timestamp_whose_window_leaves_64_bits_is_refused_and_not_wrapped(at: int, others: list[Event]) -> None:
    spec = WindowAggregateSpec(("key",), AGGREGATES, Tumbling(SIZE_MS, 3), 0, None)
    chain = chain_of(OperatorKind.WINDOW_COLUMNS, spec, WINDOWED)
    with pytest.raises(OperatorFailure, match=f"the operator.* timestamp is {at} ms"):
        chain.run(batch_of([*others, (1, 1, None, None, at)]))


def test_what_is_kept_for_ever_is_never_late() -> None:
    spec = WindowAggregateSpec(("key",), AGGREGATES[:1], Tumbling(SIZE_MS), 2**63 - 30, None)
    output = Types.ROW_NAMED(WINDOWED.schema.names[:4], [Types.LONG()] * 4)
    chain = chain_of(OperatorKind.WINDOW_COLUMNS, spec, output)
    list(chain.on_watermark(2**63 - 20))
    rows = [(1, None, None, None, at) for at in (0, 2**62)]
    assert sorted(row[3] for _, batch in chain.run(batch_of(rows)) for row in rows_of([batch])) == [1], "0 is too old"
    assert chain.late_rows == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_between_two_groups_of_a_firing_window_has_the_rest(kind: str) -> None:
    with ColumnarBackends(kind) as backends:
        check_a_snapshot_between_two_groups(backends)


def check_a_snapshot_between_two_groups(backends: ColumnarBackends) -> None:
    keys = 3 * ROWS_PER_FIRED_GROUP // 2
    spec = WindowAggregateSpec(("key",), AGGREGATES[:1], Tumbling(SIZE_MS), 0, None)
    types = Types.ROW_NAMED(["key", "window_start", "window_end", "rows"], [Types.LONG()] * 4)
    backend = backends.new()
    chain = chain_of(OperatorKind.WINDOW_COLUMNS, spec, types, backend)
    events = batch_of([(0, 1, 1.0, 1, 5)])
    many = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(keys)), *(pa.array([c[0].as_py()] * keys, c.type) for c in events.columns[1:])], schema=WIRE
    )
    list(chain.run(many))
    firing = chain.on_watermark(20)
    first = next(firing)[1].column(0).to_pylist()
    parts = [b"".join(bytes(x) for x in p.parts) for p in encoded(backend)]
    rest = [key for _, batch in firing for key in batch.column(0).to_pylist()]
    again = backends.new()
    for part in parts:
        again.restore("uid", "_aggregates", part, range(128))
    after = chain_of(OperatorKind.WINDOW_COLUMNS, spec, types, again)
    after.set_time(20, [])
    after_restore = [key for _, batch in after.on_watermark(20) for key in batch.column(0).to_pylist()]
    assert sorted(first + after_restore) == sorted(first + rest) == list(range(keys))
    assert sorted(after_restore) == sorted(rest)


def test_no_key_sees_time_run_backwards_after_a_rescale() -> None:
    spec = WindowAggregateSpec(("key",), AGGREGATES[:1], Tumbling(SIZE_MS), 0, "late")
    types = Types.ROW_NAMED(["key", "window_start", "window_end", "rows"], [Types.LONG()] * 4)
    chain = chain_of(OperatorKind.WINDOW_COLUMNS, spec, types)
    chain.set_time(5, [GroupFloor(2, 4, 40)])
    rows = [(key, 1, 1.0, 1, 25) for key in range(8)]
    late = [b for tag, b in chain.run(batch_of(rows)) if tag == "late"]
    assert late[0].column("key").to_pylist() == [2, 3]
    assert late[0].schema.equals(ROW.schema.append(TIMESTAMP_FIELD))
    fired = [b.column("key").to_pylist() for _, b in chain.on_watermark(50)]
    assert sorted(fired[0]) == [0, 1, 4, 5, 6, 7]


# ---- sums at the edge of 64 bits, numbers that are none --------------------------------------------------------------


def sums(values: list[int | None], backend: ColumnarBackend[Any] | None = None) -> list[Any]:
    out = Types.ROW_NAMED(["key", "sum"], [Types.LONG(), Types.LONG()])
    spec = AggregateSpec(("key",), (Aggregate("sum", "sum", "whole"),))
    chain = chain_of(OperatorKind.AGGREGATE_COLUMNS, spec, out, backend)
    made = []
    for value in values:
        made += chain.run(batch_of([(7, value, 0.0, 0, 0)]))
    return [b.column("sum")[0].as_py() for _, b in made]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_are_exact_up_to_64_bits_and_fail_beyond(sign: int, kind: str) -> None:
    most = 2**63 - 1 if sign == 1 else -(2**63)
    with ColumnarBackends(kind) as backends:
        made = sums([most - sign * 5, sign * 5, None, -sign, sign], backends.new())
        assert made == [most - sign * 5, most, most, most - sign, most]
        with pytest.raises(OperatorFailure, match=r"sum\('whole'\) of the key key = 7 does not fit in 64 bits"):
            sums([most, sign], backends.new())


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12))
def test_an_overflow_in_the_middle_of_a_batch_is_found(values: list[int]) -> None:
    out = Types.ROW_NAMED(["key", "sum"], [Types.LONG(), Types.LONG()])
    chain = chain_of(OperatorKind.AGGREGATE_COLUMNS, AggregateSpec(("key",), (Aggregate("sum", "sum", "whole"),)), out)
    events = [(nth % 2, value, 0.0, 0, 0) for nth, value in enumerate(values)]
    running: dict[int, int] = defaultdict(int)
    wanted, fits = [], True
    for key, value, *_ in events:
        running[key] += value
        fits = fits and -(2**63) <= running[key] < 2**63
        wanted.append(running[key])
    if fits:
        assert [b.column("sum").to_pylist() for _, b in chain.run(batch_of(events))] == [wanted]
    else:
        with pytest.raises(OperatorFailure, match="64 bits"):
            chain.run(batch_of(events))


def test_extremes_ignore_nan_but_where_there_is_nothing_else_and_one_key_does_not_harm_another() -> None:
    out = Types.ROW_NAMED(["key", "most", "sum"], [Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
    aggregates = (Aggregate("most", "max", "real"), Aggregate("sum", "sum", "real"))
    chain = chain_of(OperatorKind.AGGREGATE_COLUMNS, AggregateSpec(("key",), aggregates), out)
    reals = [(1, math.nan), (2, math.inf), (1, 2.0), (2, -math.inf), (3, 0.1), (3, 1e300), (3, -1e300), (1, math.nan)]
    ((_, made),) = chain.run(batch_of([(key, 0, real, 0, 0) for key, real in reals]))
    assert repr(made.column("most").to_pylist()) == "[nan, inf, 2.0, inf, 0.1, 1e+300, 1e+300, 2.0]"
    assert repr(made.column("sum").to_pylist()) == "[nan, inf, nan, nan, 0.1, 1e+300, 0.0, nan]"


# ---- without state --------------------------------------------------------------------------------------------------


def test_filters_projections_and_functions_keep_the_time_of_rows() -> None:
    rows = batch_of([(n, n * n, float(n), n, n + 100) for n in range(20)])
    kept = chain_of(OperatorKind.FILTER_COLUMNS, FilterSpec(pc.field("whole") > 100), ROW).run(rows)[0][1]
    assert kept.column(TIMESTAMP_COLUMN).to_pylist() == list(range(111, 120))
    two = Types.ROW_NAMED(["key", "double"], [Types.LONG(), Types.LONG()])
    spec = ProjectSpec((("key", "key"), ("double", pc.field("whole") * 2)))
    made = chain_of(OperatorKind.PROJECT, spec, two).run(rows)[0][1]
    assert made.schema.equals(two.schema.append(TIMESTAMP_FIELD))
    assert made.to_pylist()[3] == {"key": 3, "double": 18, TIMESTAMP_COLUMN: 103}

    def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.equal(pc.bit_wise_and(batch.column("key"), 1), 1))

    made = chain_of(OperatorKind.MAP_BATCHES, MapBatchesSpec(odd, ROW.schema), ROW).run(rows)[0][1]
    assert made.column(TIMESTAMP_COLUMN).to_pylist() == list(range(101, 120, 2))
    shortened = MapBatchesSpec(lambda batch: odd(batch).drop_columns([TIMESTAMP_COLUMN]), ROW.schema)
    with pytest.raises(OperatorFailure, match="10 rows were returned for 20.*keep the column '__timestamp__'"):
        chain_of(OperatorKind.MAP_BATCHES, shortened, ROW).run(rows)
