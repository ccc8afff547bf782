"""Provides the functions of simulated jobs. A row is (split, number, key, copy, count).

(split, number, copy) names a row for ever; rows of one split and key stand in the order of (number, copy) wherever
nothing has scattered them. `count` is the last keyed operator's.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from penstock.common.types import Types
from penstock.datastream.functions import (
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

ROW_TYPE = Types.TUPLE([Types.LONG()] * 5)
_PASSED = ListStateDescriptor("passed", Types.LONG())
SPLITS_PER_TAG = 16
COPIES_PER_FAN = 64


def scrambled(row: Row, salt: int) -> int:
    """Return the same number for a row wherever it is, as good as random."""
    split, number, key, copy, _ = row
    return (split * 7919 + number * 104729 + key * 31 + copy * 611953 + salt * 15485863) % 1000003


def key_of(row: Row) -> int:
    return row[2]


def key_text_of(row: Row) -> str:
    return f"key {row[2]}"


def modulo(key: int, partitions: int) -> int:
    return key % partitions


class Busy:
    """Spends time like a slow function. Every `stalls_every`-th row (0: none) takes 200 ms."""

    def __init__(self, cost_ms: float, stalls_every: int = 0) -> None:
        self.cost_ms = cost_ms
        self.stalls_every = stalls_every
        self._rows = 0

    def work(self) -> None:
        around = world_hooks.current()
        self._rows += 1
        stalls = self.stalls_every and self._rows % self.stalls_every == 0
        around.pass_time(200.0 if stalls else self.cost_ms)
        if around.fail_now():
            raise RuntimeError("simulated failure of user code")


class Hoard(Busy, MapFunction):
    """Passes values, and keeps them in `self`. That is no state: each generation has a function object of its own,
    which has seen nothing, and which no value reaches twice."""

    def __init__(self, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self._kept: set[Any] = set()

    def open(self, runtime_context: RuntimeContext) -> None:
        if self._kept:
            world_hooks.current().violate(f"a function object is opened that keeps {len(self._kept)} values")

    def map(self, value: Any) -> Any:
        self.work()
        if value in self._kept:
            world_hooks.current().violate(f"{value} comes twice to one function object")
        self._kept.add(value)
        return value


class Label(Hoard):
    """Turns a number of a sequence into a row. `bounds[i]` is where split i begins; with `relative` it is counted from
    there.
    """

    def __init__(self, source: int, bounds: list[int], keys: int, cost_ms: float, relative: bool = False) -> None:
        super().__init__(cost_ms)
        self.relative = relative
        self.source = source
        self.bounds = bounds
        self.keys = keys

    def map(self, value: int) -> Row:
        return self.label(super().map(value))

    def label(self, value: int) -> Row:
        split = sum(1 for b in self.bounds if value >= b)
        number = value - self.bounds[split - 1] if self.relative else value
        return (self.source * SPLITS_PER_TAG + split, number, value * 7 % self.keys, 0, 0)


class Pass(Busy, MapFunction):
    def map(self, value: Row) -> Row:
        self.work()
        return value


class Tally(Pass, CheckpointedFunction):
    """Passes rows, and remembers how many there were: a number per subtask, dealt out at another parallelism."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._passed = context.get_operator_state_store().get_list_state(_PASSED)
        self._count = sum(self._passed.get())
        if self._count and not context.is_restored():
            world_hooks.current().violate(f"a new job has passed {self._count} rows already")

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._passed.update([self._count])

    def map(self, value: Row) -> Row:
        self._count += 1
        return super().map(value)


class TagBranch(Busy, MapFunction):
    """Make the rows of one of several branches different from those of the others."""

    def __init__(self, branch: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.branch = branch

    def map(self, value: Row) -> Row:
        self.work()
        return tagged(value, self.branch)


class TagSubtask(Busy, MapFunction):
    """Make the rows that each subtask got of a broadcast different."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Row) -> Row:
        self.work()
        return tagged(value, self.subtask)


def tagged(row: Row, tag: int) -> Row:
    split, number, key, copy, count = row
    return (split * SPLITS_PER_TAG + tag + 1, number, key, copy, count)


class Keep(Busy, FilterFunction):
    def __init__(self, salt: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.salt = salt

    def filter(self, value: Row) -> bool:
        self.work()
        return self.keeps(value)

    def keeps(self, row: Row) -> bool:
        return scrambled(row, self.salt) % 4 != 0


class Expand(Busy, FlatMapFunction):
    """Emits 0 to `fan` rows for each, lazily; `burst` of them for one row in fifty."""

    def __init__(self, salt: int, fan: int, burst: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.salt = salt
        self.fan = fan
        self.burst = burst

    def flat_map(self, value: Row) -> Iterator[Row]:
        self.work()
        around = world_hooks.current()
        for row in self.expanded(value):
            around.pass_time(self.cost_ms / 10)
            yield row

    def expanded(self, row: Row) -> Iterator[Row]:
        drawn = scrambled(row, self.salt)
        made = self.burst if drawn % 50 == 0 else drawn % (self.fan + 1)
        split, number, key, copy, count = row
        for i in range(made):
            yield (split, number, key, copy * COPIES_PER_FAN + i, count)


class Recycle(Busy, FlatMapFunction):
    """Emits `fan` rows for each, all of them one and the same list, which it changes between them."""

    def __init__(self, fan: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.fan = fan
        self._row: list[int] = [0] * 5

    def flat_map(self, value: Row) -> Iterator[list[int]]:
        self.work()
        for made in self.made_of(value):
            self._row[:] = made
            yield self._row

    def made_of(self, row: Row) -> Iterator[Row]:
        split, number, key, copy, count = row
        for i in range(self.fan):
            yield (split, number, key, copy * COPIES_PER_FAN + i, count)


class Count(Busy, KeyedProcessFunction):
    """Number the rows of each key, and remember them all in every kind of state there is.

    `ordered`: rows of one split and key have to come in order.
    """

    def __init__(self, name: str, ordered: bool, cost_ms: float, stalls_every: int) -> None:
        super().__init__(cost_ms, stalls_every)
        self.name = name
        self.ordered = ordered

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen"))
        self._rows = 0
        self._names = runtime_context.get_list_state(ListStateDescriptor("names"))
        self._last = runtime_context.get_map_state(MapStateDescriptor("last", Types.LONG()))

    def close(self) -> None:
        world_hooks.current().keep(self._count)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        split, number, key, copy, _ = value
        name = (split, number, copy)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        # Changed in place, before and after it is put back: a snapshot must not see it.
        seen = self._seen.value() or []
        seen.append(name)
        self._seen.update(seen)
        self._names.add(name)
        last = self._last.get(split)
        if self.ordered and last is not None and tuple(last) >= (number, copy):
            world_hooks.current().violate(f"{self.name}: split {split} key {key}: {(number, copy)} after {last}")
        self._last.put(split, (number, copy))
        if len(seen) != count:
            world_hooks.current().violate(f"{self.name}: key {key}: {len(seen)} rows seen, {count} counted")
        yield (split, number, key, copy, count)


class Follow(Busy, ReduceFunction):
    """Keeps the newest row of a key, with how many there were before it."""

    def reduce(self, value1: Any, value2: Any) -> Row:
        self.work()
        split, number, key, copy, _ = value2
        return (split, number, key, copy, value1[4] + 1)


class Reset(Busy, MapFunction):
    """Resets counts before a reduce, which passes a key's first row as it is."""

    def map(self, value: Row) -> Row:
        self.work()
        return (*value[:4], 1)


class AskLate(Busy, KeyedProcessFunction):
    """Passes rows. Keeps those with numbers below `kept_to` in state, asks for none of it with the rows that follow,
    and looks for all of it from number `asked_from` on. `expected`: how many each key keeps."""

    def __init__(self, kept_to: int, asked_from: int, expected: dict[int, int], cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.kept_to = kept_to
        self.asked_from = asked_from
        self.expected = expected

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def _kept(self) -> Any:
        return self._context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.work()
        number, key = value[1], value[2]
        if number < self.kept_to:
            self._kept().add(number)
        elif number >= self.asked_from:
            found = sorted(self._kept().get() or [])
            if found != sorted(set(found)) or len(found) != self.expected[key]:
                world_hooks.current().violate(
                    f"key {key}: state that is first asked for now has {len(found)} of {self.expected[key]} rows"
                )
        yield value
