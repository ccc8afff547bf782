"""Tests a chain, whatever cuts it: slices of any length, full outputs, barriers, deadlines. Each input row's effects
appear exactly once and in order, and `taken` says how far it came, so that continuing from there loses and repeats
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.types import Types
from penstock.datastream._streams.function_wrappers import CallableFilter, CallableFlatMap, CallableMap
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.rows.chain import Chain, Slice
from penstock.operators.rows.creation import create_row_operator
from tests.unit.operators.rows.bare_context import bare_context

Expand = Callable[[int], list[int]]
"""A stage as a reference: what becomes of one row."""


def generator(expand: Expand) -> Callable[[int], Iterator[int]]:
    def made(row: int) -> Iterator[int]:
        yield from expand(row)

    return made


def many(copies: int) -> Expand:
    return lambda row: [row * 1_000 + i for i in range(copies if row % 3 else 0)]


class Process(ProcessFunction):
    def __init__(self, expand: Expand) -> None:
        self.expand = expand

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        yield from self.expand(value)


class CountPerKey(KeyedProcessFunction):
    """The key that the runtime has set, read in the middle of its output, too."""

    def __init__(self, current: list[Any]) -> None:
        self.current = current

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        for i in range(value % 5):
            assert self.current[0] == value % 7, "another row's key is set"
            yield value * 10 + i


STAGES: dict[str, tuple[OperatorKind, Callable[[], Any], Expand]] = {
    "map": (OperatorKind.MAP, lambda: CallableMap(lambda x: x + 1), lambda x: [x + 1]),
    "filter": (OperatorKind.FILTER, lambda: CallableFilter(lambda x: x % 2 == 0), lambda x: [x] if x % 2 == 0 else []),
    "list of 3": (OperatorKind.FLAT_MAP, lambda: CallableFlatMap(many(3)), many(3)),
    "none": (OperatorKind.FLAT_MAP, lambda: CallableFlatMap(lambda x: None if x % 4 else [x]),
             lambda x: [] if x % 4 else [x]),
    "generator of 300": (OperatorKind.FLAT_MAP, lambda: CallableFlatMap(generator(many(300))), many(300)),
    "process of 40": (OperatorKind.PROCESS, lambda: Process(many(40)), many(40)),
}  # fmt: skip


LARGE = ("generator of 300", "process of 40")


def pipelines(stages_max: int) -> st.SearchStrategy[list[str]]:
    """Draw chains with at most one stage that makes hundreds of rows of one."""
    names = st.lists(st.sampled_from(sorted(STAGES)), min_size=1, max_size=stages_max)
    return names.filter(lambda found: sum(n in LARGE for n in found) < 2)


def reference(stages: list[Expand], rows: list[int]) -> list[int]:
    for expand in stages:
        rows = [made for row in rows for made in expand(row)]
    return rows


def operator(name: str, kind: OperatorKind, function: Any) -> Operator:
    return Operator(f"uid of {name}", name, kind, function, Types.LONG(), Types.LONG())


@dataclass
class Outputs:
    """Room as the test says; after that, always."""

    answers: Iterator[bool]
    rows: list[int] = field(default_factory=list)

    def emit(self, batch: pa.RecordBatch, rows: list[Any] | None, tag: str | None) -> None:
        assert batch.column(0).to_pylist() == rows
        self.rows += batch.column(0).to_pylist()

    def has_room(self) -> bool:
        return next(self.answers, True)


class TickingClock:
    """Every look at it takes as long as the test says."""

    def __init__(self, tick_ms: float) -> None:
        self.now_ms = 0.0
        self._tick_ms = tick_ms

    def __call__(self) -> float:
        self.now_ms += self._tick_ms
        return self.now_ms


def chain_of(names: list[str], outputs: Outputs, clock: TickingClock) -> tuple[Chain, list[Expand]]:
    functions, expands = [], []
    for name in names:
        kind, function, expand = STAGES[name]
        made_operator = operator(name, kind, function())
        functions.append(create_row_operator(made_operator, bare_context(made_operator)))
        expands.append(expand)
    vertex = Vertex(0, "chain", 1, 128, tuple(f.operator for f in functions))
    made = Chain(vertex, functions, outputs.emit, outputs.has_room, outputs.has_room, None, False, clock)
    return made, expands


def push(data: st.DataObject, chain: Chain, piece: Slice) -> None:
    """Runs a slice to its end, through as many refusals and barriers as the test draws."""
    through = chain.run(piece)
    while not through:
        assert chain.unfinished
        through = chain.resume(drain=data.draw(st.booleans(), label="a barrier waits"))
    assert not chain.unfinished and piece.finished


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_row_once_and_in_order_whatever_cuts_the_work(data: st.DataObject) -> None:
    names = data.draw(pipelines(3))
    rows = list(range(data.draw(st.integers(0, 60))))
    outputs = Outputs(iter(data.draw(st.lists(st.booleans(), max_size=30), label="room")))
    clock = TickingClock(data.draw(st.sampled_from([0.0, 1.0, 50.0])))
    chain, stages = chain_of(names, outputs, clock)
    at = 0
    while at < len(rows):
        end = min(len(rows), at + data.draw(st.integers(1, 40), label="rows_max"))
        piece = Slice(rows, None, None, at, end, clock.now_ms + 20.0)
        push(data, chain, piece)
        assert piece.taken >= 1, "a slice makes progress"
        at += piece.taken
        assert at <= end
        assert outputs.rows == reference(stages, rows[:at])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_reader_has_handed_over_goes_through_whole(data: st.DataObject) -> None:
    """A reader's position is behind all the rows of a read, so neither a deadline nor a barrier may leave some."""
    names = data.draw(pipelines(2))
    rows = list(range(data.draw(st.integers(1, 60))))
    outputs = Outputs(iter(data.draw(st.lists(st.booleans(), max_size=30), label="room")))
    chain, stages = chain_of(names, outputs, TickingClock(50.0))
    piece = Slice(rows, None, None, 0, len(rows), 0.0, whole=True)
    push(data, chain, piece)
    assert piece.taken == len(rows)
    assert outputs.rows == reference(stages, rows)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_each_row_sees_its_own_key(data: st.DataObject) -> None:
    rows = list(range(data.draw(st.integers(1, 300))))
    current: list[Any] = [None, None]

    def set_key(key: Any, key_group: int) -> None:
        assert key_group == key * 2
        current[0] = key

    outputs = Outputs(iter(data.draw(st.lists(st.booleans(), max_size=10), label="room")))
    count = operator("count", OperatorKind.KEYED_PROCESS, CountPerKey(current))
    head = create_row_operator(count, bare_context(count))
    chain = Chain(
        Vertex(0, "chain", 1, 128, (head.operator,), True),
        [head],
        outputs.emit,
        outputs.has_room,
        outputs.has_room,
        set_key,
        False,
        TickingClock(0.0),
    )
    keys = [row % 7 for row in rows]
    at = 0
    while at < len(rows):
        end = min(len(rows), at + data.draw(st.integers(1, 300), label="rows_max"))
        piece = Slice(rows, keys, [k * 2 for k in keys], at, end, 1e9)
        push(data, chain, piece)
        at += piece.taken
        assert outputs.rows == [row * 10 + i for row in rows[:at] for i in range(row % 5)]
