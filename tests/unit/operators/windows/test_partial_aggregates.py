"""Tests rows that are added up before they leave: a row for each key and window, and in the end the same results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.columnar import ColumnAggregate, count, max_, mean, min_, sum_
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.two_phases import PartialAggregates
from penstock.operators.batches import TIMESTAMP_FIELD
from penstock.operators.windows import partial_aggregates
from penstock.operators.windows.partial_aggregates import PartialAggregator

ROWS = Types.ROW_NAMED(
    ["user", "value", "small", "price", "at"],
    [Types.STRING(), Types.LONG(), Types.INT(), Types.DOUBLE(), Types.LONG()],
)
SIZE_MS = 100


def partial_of(aggregates: dict[str, ColumnAggregate], tag: bool = False) -> PartialAggregates | None:
    env = StreamExecutionEnvironment.get_execution_environment()
    time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    rows = env.from_collection([], ROWS).assign_timestamps_and_watermarks(time)
    windows = rows.key_by("user").window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    if tag:
        windows = windows.side_output_late_data(OutputTag("late", ROWS))
    (given_,) = windows.aggregate(**aggregates)._inputs[0].node.inputs
    assert given_.partitioner is not None
    return given_.partitioner.partial


ALL = {
    "rows": count(),
    "values": count("value"),
    "total": sum_("value"),
    "smalls": sum_("small"),
    "least": min_("value"),
    "most": max_("small"),
}


def test_only_what_does_not_depend_on_the_batches_is_added_up_before() -> None:
    made = partial_of(ALL)
    assert made is not None and made.rows_column == "_rows"
    assert made.row_type.schema.names == ["user", "rows", "values", "total", "smalls", "least", "most", "_rows"]
    assert partial_of({"total": sum_("price")}) is None, "a sum of floats depends on their order"
    assert partial_of({"total": mean("value")}) is None
    assert partial_of({"least": min_("price")}) is None, "0.0 and -0.0 are equal, and not the same"
    assert partial_of({"rows": count()}, tag=True) is None, "late rows are put out as they came"


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(ROWS.schema)]
    stamps = pa.array([row[4] for row in rows], pa.int64())
    return pa.RecordBatch.from_arrays([*columns, stamps], schema=ROWS.schema.append(TIMESTAMP_FIELD))


def merged(made: pa.RecordBatch) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what the window's operator makes of it."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in made.to_pylist():
        key = row["user"], row["__timestamp__"] // SIZE_MS
        into = found.setdefault(key, dict.fromkeys([*ALL, "_rows"]))
        for name in into:
            fold = {"least": min, "most": max}.get(name, sum)
            values = [v for v in (into[name], row[name]) if v is not None]
            into[name] = fold(values) if values else None
    return found


def directly(rows: list[tuple[Any, ...]]) -> dict[tuple[str, int], dict[str, Any]]:
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault((row[0], row[4] // SIZE_MS), []).append(row)
    told = {}
    for key, group in found.items():
        values = [row[1] for row in group if row[1] is not None]
        smalls = [row[2] for row in group if row[2] is not None]
        told[key] = {
            "rows": len(group), "values": len(values), "total": sum(values) if values else None,
            "smalls": sum(smalls) if smalls else None, "least": min(values, default=None),
            "most": max(smalls, default=None), "_rows": len(group),
        }  # fmt: skip
    return told


longs = st.integers(-(2**40), 2**40) | st.none()
rows_of = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", ""]), longs, st.integers(-9, 9) | st.none(), st.none(), st.integers(-250, 250)
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=100)
@given(rows_of)
def test_a_batch_says_the_same_added_up_and_row_by_row(rows: list[tuple[Any, ...]]) -> None:
    spec, batch = partial_of(ALL), batch_of(rows)
    assert spec is not None
    aggregator = PartialAggregator(spec)
    grouped, each = aggregator._grouped(batch), aggregator._each(batch)
    assert grouped.schema == each.schema == spec.row_type.schema.append(TIMESTAMP_FIELD)
    assert each.num_rows == len(rows) and grouped.num_rows == len(directly(rows))
    assert merged(grouped) == merged(each) == directly(rows)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregates, "GROUPED_ROWS_MIN", 4)


@pytest.mark.usefixtures("small")
def test_a_batch_whose_sum_might_leave_64_bits_is_left_to_the_window() -> None:
    spec = partial_of(ALL)
    assert spec is not None
    huge = [("ann", value, 0, None, 0) for value in (2**62, 2**62, -(2**62), 0)]
    made = PartialAggregator(spec).of(batch_of(huge))
    assert made.column("total").to_pylist() == [2**62, 2**62, -(2**62), 0]


@pytest.mark.usefixtures("small")
def test_rows_that_are_wrong_stay_what_they_are() -> None:
    spec = partial_of({"rows": count()})
    assert spec is not None
    for user, at in ((None, 0), ("ann", None)):
        made = PartialAggregator(spec).of(batch_of([("ann", 1, 1, None, 0)] * 3 + [(user, 1, 1, None, at)]))
        assert made.num_rows == 4 and made.column("user")[3].as_py() == user


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at", [-(2**63), 2**63 - 1])
def test_a_timestamp_that_has_no_window_is_left_to_the_window(at: int) -> None:
    spec = partial_of({"rows": count()})
    assert spec is not None
    made = PartialAggregator(spec).of(batch_of([("ann", 1, 1, None, 0)] * 3 + [("ann", 1, 1, None, at)]))
    assert made.column("__timestamp__").to_pylist() == [0, 0, 0, at]


def held_by(aggregator: PartialAggregator, *batches: pa.RecordBatch) -> list[int]:
    return [sum(made.num_rows for made in aggregator.add(batch)) for batch in batches]


@pytest.mark.usefixtures("small")
def test_rows_wait_until_there_are_enough_to_be_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregates, "HELD_ROWS_MAX", 10)
    spec = partial_of(ALL)
    assert spec is not None
    aggregator = PartialAggregator(spec)
    rows: list[tuple[Any, ...]] = [("ann", n, 1, None, n) for n in range(4)]
    assert held_by(aggregator, batch_of(rows), batch_of(rows)) == [0, 0] and aggregator.holds
    [made] = aggregator.add(batch_of(rows))
    assert not aggregator.holds and merged(made) == directly(rows * 3)
    assert made.num_rows == 1


@pytest.mark.usefixtures("small")
def test_what_waits_leaves_when_it_is_asked_for_and_no_event_time_and_no_key_are_lost() -> None:
    spec = partial_of(ALL)
    assert spec is not None
    aggregator = PartialAggregator(spec)
    rows: list[tuple[Any, ...]] = [("ann", None, 1, None, -150), ("bob", 5, None, None, 90), ("ann", 2, 3, None, 99)]
    assert held_by(aggregator, batch_of(rows), batch_of(rows)) == [0, 0]
    [made] = aggregator.flush_held()
    assert merged(made) == directly(rows * 2)
    assert aggregator.flush_held() == [] and not aggregator.holds


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("user", "at"), [(None, 0), ("ann", None)])
def test_a_row_that_is_wrong_does_not_wait_and_comes_behind_those_that_do(user: str | None, at: int | None) -> None:
    spec = partial_of({"rows": count()})
    assert spec is not None
    aggregator = PartialAggregator(spec)
    assert held_by(aggregator, batch_of([("ann", 1, 1, None, 0)] * 5)) == [0]
    waited, wrong = aggregator.add(batch_of([(user, 1, 1, None, at)]))
    assert (waited.num_rows, wrong.column("user").to_pylist()) == (1, [user]) and not aggregator.holds


def test_after_a_pause_small_slices_are_added_up_again() -> None:
    spec = partial_of({"rows": count()})
    assert spec is not None
    aggregator = PartialAggregator(spec)
    assert aggregator.of(batch_of([(str(n), 1, 1, None, 0) for n in range(4096)])).num_rows == 4096
    slice_ = batch_of([("ann", 1, 1, None, 0)] * 1024)
    sent = [sum(made.num_rows for made in aggregator.add(slice_)) for _ in range(72)]
    assert sent == [1024] * 4 + [0] * 63 + [1] + [0] * 4


@pytest.mark.usefixtures("small")
def test_keys_that_hardly_repeat_are_tried_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = partial_of({"rows": count()})
    assert spec is not None
    aggregator, grouped = PartialAggregator(spec), []
    group = aggregator._grouped

    def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
        grouped.append(batch)
        return group(batch)

    monkeypatch.setattr(aggregator, "_grouped", counting)
    distinct = batch_of([(str(n), 1, 1, None, 0) for n in range(8)])
    for _ in range(1000):
        assert aggregator.of(distinct).num_rows == 8
    assert 15 <= len(grouped) <= 25
    repeating = batch_of([("ann", 1, 1, None, 0)] * 8)
    sent = [aggregator.of(repeating).num_rows for _ in range(100)]
    assert sent[-30:] == [1] * 30
