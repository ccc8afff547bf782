"""Every recovered row goes to exactly one new consumer, the one that owns it, however often the job is rescaled; and
time never runs backwards for a key, nor ahead of what some old producer had said.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.restore.rescale import (
    ANY_CONSUMER,
    Filter,
    floors,
    live_start,
    redistributed,
    shares,
    state_holders,
)
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.keys import key_group_range, owner
from penstock.protocol.values.metadata import GroupFloor, SubtaskSnapshot

parallelisms = st.integers(1, 12)
MAX_PARALLELISM = 128


@dataclass(frozen=True)
class Row:
    number: int
    key: int
    key_group: int


def consumer_of(partitioner: str, row: Row, parallelism: int) -> int:
    if partitioner == "hash":
        return owner(row.key_group, MAX_PARALLELISM, parallelism)
    if partitioner == "custom":
        return (row.key * 7 + 3) % parallelism
    return 0 if partitioner == "global" else row.number % parallelism


def rescaled(partitioner: str, held: list[list[Row]], new: int) -> list[list[Row]]:
    """Return what each new consumer makes of its shares."""

    def mine(row: Row, rows: Filter, consumer: int) -> bool:
        if rows is Filter.KEY_GROUPS:
            return row.key_group in key_group_range(MAX_PARALLELISM, new, consumer)
        return rows is Filter.WHOLE or consumer_of(partitioner, row, new) == consumer

    return [
        [
            row
            for share in shares(partitioner, len(held), new, MAX_PARALLELISM, consumer)
            for row in held[share.holder]
            if mine(row, share.filter, consumer)
        ]
        for consumer in range(new)
    ]


@given(
    st.sampled_from(["hash", "custom", "global", *ANY_CONSUMER]),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, MAX_PARALLELISM - 1)), max_size=60),
    st.lists(parallelisms, min_size=2, max_size=6),
)
def test_every_row_has_one_owner_through_any_cascade(
    partitioner: str, keys: list[tuple[int, int]], cascade: list[int]
) -> None:
    rows = [Row(number, key, group) for number, (key, group) in enumerate(keys)]
    held: list[list[Row]] = [[] for _ in range(cascade[0])]
    for row in rows:
        held[consumer_of(partitioner, row, cascade[0])].append(row)
    for parallelism in cascade[1:]:
        held = rescaled(partitioner, held, parallelism)
        assert sorted(row.number for of_one in held for row in of_one) == [row.number for row in rows]
        if partitioner not in ANY_CONSUMER:
            for consumer, of_one in enumerate(held):
                assert {consumer_of(partitioner, row, parallelism) for row in of_one} <= {consumer}


@given(parallelisms, parallelisms)
def test_rows_of_one_old_channel_stay_together_where_they_may_go_anywhere(old: int, new: int) -> None:
    found = [shares("rebalance", old, new, MAX_PARALLELISM, consumer) for consumer in range(new)]
    got = [share.holder for of_one in found for share in of_one]
    assert got == list(range(old)), "in order, and each once"


@given(parallelisms, parallelisms)
def test_what_is_left_of_a_broadcast_goes_to_every_receiver(old: int, new: int) -> None:
    found = [[s.holder for s in shares("broadcast", old, new, MAX_PARALLELISM, consumer)] for consumer in range(new)]
    assert found == [[consumer] if old == new else [0] for consumer in range(new)]


@given(parallelisms, parallelisms)
def test_keyed_state_is_read_by_whom_it_may_belong_to(old: int, new: int) -> None:
    for group in range(MAX_PARALLELISM):
        reader = owner(group, MAX_PARALLELISM, new)
        assert owner(group, MAX_PARALLELISM, old) in state_holders(old, new, MAX_PARALLELISM, reader)


@given(st.lists(st.lists(st.integers()), min_size=1, max_size=6), parallelisms)
def test_items_are_dealt_to_one_subtask_each(items: list[list[int]], new: int) -> None:
    got = [redistributed(items, new, subtask) for subtask in range(new)]
    assert sorted(x for of_one in got for x in of_one) == sorted(x for of_one in items for x in of_one)
    if new == len(items):
        assert got == items
    else:
        assert max(map(len, got)) - min(map(len, got)) <= 1


def snapshot(subtask: int, **time: object) -> SubtaskSnapshot:
    return SubtaskSnapshot(0, subtask, [], [], [], [], [], [], [], **time)  # type: ignore[arg-type]


times = st.one_of(st.none(), st.integers(0, 100))
emitted = st.one_of(times, st.just(WATERMARK_MAX_MS))


@given(st.lists(st.tuples(emitted, st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_a_live_channel_starts_where_every_telling_producer_had_been(old: list[tuple[int | None, bool, bool]]) -> None:
    producers = [snapshot(i, watermark_ms=w, idle=idle, finished=ended) for i, (w, idle, ended) in enumerate(old)]
    start = live_start(producers)
    assert not start.idle and not start.ended
    unfinished = [p for p in producers if not p.finished]
    if said_the_last := [p for p in unfinished if p.watermark_ms == WATERMARK_MAX_MS]:
        is_said_by_all = len(said_the_last) == len(unfinished)
        assert (start.watermark_ms == WATERMARK_MAX_MS) == is_said_by_all, "nobody's time ends before all have said so"
        unfinished = unfinished if is_said_by_all else [p for p in unfinished if p not in said_the_last]
    telling = [p for p in unfinished if not p.idle] or unfinished
    said = [WATERMARK_MIN_MS if p.watermark_ms is None else p.watermark_ms for p in telling]
    combined = max if all(p.idle for p in telling) else min
    assert start.watermark_ms == (combined(said) if said else WATERMARK_MIN_MS)


@given(parallelisms, st.lists(parallelisms, min_size=1, max_size=4), st.data())
def test_no_key_group_sees_time_run_backwards(first: int, cascade: list[int], data: st.DataObject) -> None:
    """Rescales in any cascade, with subtasks that get on in between: the floor of each group is what its owner had
    reached."""
    reached = dict.fromkeys(range(MAX_PARALLELISM), WATERMARK_MIN_MS)
    old = [snapshot(i, current_ms=data.draw(times)) for i in range(first)]
    for parallelism in cascade:
        for group in reached:
            its_owner = old[owner(group, MAX_PARALLELISM, len(old))]
            known = [f.watermark_ms for f in its_owner.floors if f.first <= group < f.end]
            current = WATERMARK_MIN_MS if its_owner.current_ms is None else its_owner.current_ms
            reached[group] = max([reached[group], current, *known])
        found: list[SubtaskSnapshot] = []
        for subtask in range(parallelism):
            owned = key_group_range(MAX_PARALLELISM, parallelism, subtask)
            kept = floors(old, MAX_PARALLELISM, owned)
            assert all(f.first in owned and f.end - 1 in owned for f in kept)
            of_group = {group: f.watermark_ms for f in kept for group in range(f.first, f.end)}
            for group in owned:
                assert of_group.get(group, WATERMARK_MIN_MS) == reached[group]
            found.append(snapshot(subtask, current_ms=data.draw(times), floors=[GroupFloor(*_fields(f)) for f in kept]))
        old = found


def _fields(floor: GroupFloor) -> tuple[int, int, int]:
    return floor.first, floor.end, floor.watermark_ms
