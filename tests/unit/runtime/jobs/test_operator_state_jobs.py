"""Tests whole jobs whose functions, readers and writers keep operator state."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.program.failures import OperatorFailure
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import (
    CheckpointedFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.base import ReaderContext, Sink, SinkWriter, SourceReader, WriterContext
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.operator_state import count_rows
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import TIMEOUTS, Cascade

ROWS = 300
HELD = ListStateDescriptor("held", Types.LONG())
TOTALS = ListStateDescriptor("totals")


class InTwelves(FlatMapFunction, CheckpointedFunction):
    """Holds numbers back until it has twelve of them."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(HELD)
        self.held = list(self.state.get())
        assert context.is_restored() == (context.get_restored_checkpoint_id() is not None)
        assert context.is_restored() or not self.held

    def open(self, runtime_context: Any) -> None:
        assert isinstance(self.held, list), "the state is there before open()"

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        assert context.get_checkpoint_id() == -1 or context.get_checkpoint_id() > 0
        self.state.update(self.held)

    def flat_map(self, value: int) -> Any:
        self.held.append(value)
        if len(self.held) >= 12:
            yield list(self.held)
            self.held.clear()


def in_twelves(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining()
    source = env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
    source.rebalance().flat_map(InTwelves()).sink_to(CommittedRows())


def held_at_the_end(job: SmallJob) -> list[int]:
    functions = [s.parts.checkpointed for s in job.subtasks.values()]
    return [value for f in functions for _, part in f._functions if isinstance(part, InTwelves) for value in part.held]


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("parallelisms", [(2, 2, 2), (2, 3, 1), (1, 4, 2)])
def test_rows_that_a_function_holds_are_lost_by_no_restore(parallelisms: tuple[int, ...], mode: str) -> None:
    for seed in range(3):
        cascade = Cascade(in_twelves, seed)
        for parallelism in parallelisms:
            cascade.start(parallelism)
            cascade.crash_after(cascade.random.randrange(5, 30), TIMEOUTS[mode])
        job = cascade.start(parallelisms[0])
        groups = cascade.finish()
        assert Counter([v for group in groups for v in group] + held_at_the_end(job)) == Counter(range(ROWS))


def test_a_job_that_is_restored_from_its_end_still_has_what_was_held() -> None:
    cascade = Cascade(in_twelves, 7)
    job = cascade.start(2)
    job.rest()
    cascade.crash_after(1, None)
    before = held_at_the_end(job)
    again = cascade.start(2)
    again.rest()
    assert sorted(held_at_the_end(again)) == sorted(before) != []
    again.close()


class KnowsAll(MapFunction, CheckpointedFunction):
    """Counts its rows, and knows after a restore how many all subtasks had counted."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.totals = store.get_union_list_state(TOTALS)
        self.shared = store.get_broadcast_state(MapStateDescriptor("shared", Types.STRING(), Types.LONG()))
        self.before = sum(self.totals.get())
        self.rows = 0
        self.index: int | None = None
        if not context.is_restored():
            self.shared.put("start", 42)
        assert self.shared.get("start") == 42
        assert store.get_registered_state_names() == {"totals"}
        assert store.get_registered_broadcast_state_names() == {"shared"}

    def open(self, runtime_context: Any) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.totals.update([self.rows + (self.before if self.index == 0 else 0)])

    def map(self, value: int) -> tuple[int, int]:
        self.rows += 1
        return self.before, value


def known(env: StreamExecutionEnvironment) -> None:
    source = env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
    source.rebalance().map(KnowsAll()).sink_to(CommittedRows())


@pytest.mark.parametrize("after", [2, 3])
def test_a_union_list_tells_every_subtask_what_all_had(after: int) -> None:
    cascade = Cascade(known, 3)
    cascade.start(2)
    cascade.crash_after(12, None)
    taken = len(cascade.rows)
    job = cascade.start(after)
    parts = [part for s in job.subtasks.values() for _, part in s.parts.checkpointed._functions]
    functions = [part for part in parts if isinstance(part, KnowsAll)]
    assert {function.before for function in functions} == {taken} != {0}
    assert sorted(value for _, value in cascade.finish()) == list(range(ROWS))


def chained(env: StreamExecutionEnvironment) -> None:
    source = env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
    source.map(KnowsAll()).sink_to(CommittedRows())


@pytest.mark.parametrize("after", [2, 3])
def test_a_union_list_is_whole_in_a_checkpoint_of_a_partly_finished_operator(after: int) -> None:
    cascade = Cascade(chained, 6)
    job = cascade.start(2)
    job.run(400, until=lambda: len(job.at_end) == 1)
    cascade.crash_after(0, None)
    assert cascade.restored is not None
    assert sorted(s.finished for s in cascade.restored.subtasks) == [False, True]
    taken = len(cascade.rows)
    job = cascade.start(after)
    parts = [part for s in job.subtasks.values() for _, part in s.parts.checkpointed._functions]
    assert {part.before for part in parts if isinstance(part, KnowsAll)} == {taken}
    assert 0 < taken < ROWS
    assert sorted(value for _, value in cascade.finish()) == list(range(ROWS))


class CountingReader(SourceReader, CheckpointedFunction):
    """Reads numbers, and counts in operator state how many it has read."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("read", Types.LONG()))
        self.rows = sum(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.rows])

    def read(self, rows_max: int) -> Any:
        got = self._reader.read(rows_max)
        self.rows += got.num_rows if isinstance(got, pa.RecordBatch) else 0
        return got

    def add_splits(self, splits: list[bytes]) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def splits_in_hand(self) -> list[str]:
        return self._reader.splits_in_hand()

    @property
    def current_split(self) -> str:
        return self._reader.current_split

    def snapshot(self) -> list[bytes]:
        return self._reader.snapshot()


class CountedNumbers(NumberSequenceSource):
    def create_reader(self, context: ReaderContext) -> SourceReader:
        return CountingReader(super().create_reader(context))


class CountingWriter(SinkWriter, CheckpointedFunction):
    rows = 0

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("written", Types.LONG()))
        self.rows = sum(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.rows])

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows


class CountingSink(Sink):
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return CountingWriter()


def test_readers_and_writers_keep_operator_state_too() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        source = env.from_source(CountedNumbers(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
        source.rebalance().sink_to(CountingSink())

    cascade = Cascade(build, 1)
    for parallelism in (2, 3, 1):
        cascade.start(parallelism)
        cascade.crash_after(cascade.random.randrange(3, 15), 0)
    job = cascade.start(2)
    cascade.finish()
    kept = [part for ack in job.acks[max(job.acks)].values() for s in ack.subtasks for part in s.parts if part.kind]
    counts: Counter[str] = Counter()
    for part in kept:
        with pa.ipc.open_stream(part.items[0]) as reader:
            counts[part.name] += sum(reader.read_all().column(0).to_pylist())
    assert counts == {"read": ROWS, "written": ROWS}


class BufferingWriter(SinkWriter, CheckpointedFunction):
    """Keeps in operator state what it has not prepared yet."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("buffered", Types.LONG()))
        self.buffer = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.buffer)

    def write(self, batch: pa.RecordBatch) -> None:
        self.buffer += batch.column(0).to_pylist()

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        prepared, self.buffer = self.buffer, []
        return [pickle.dumps(prepared)] if prepared else []


class BufferingSink(Sink):
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return BufferingWriter()


def test_what_a_writer_prepares_after_the_end_of_the_data_is_in_its_state_no_more() -> None:
    """Its state was not asked for any more, and held the rows that the last checkpoint committed: a job that was
    restored from there committed them again."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection(list(range(9)), Types.LONG()).sink_to(BufferingSink())

    job = SmallJob(graph_of(build, 1))
    job.rest()
    assert job.all_at_end
    job.trigger(1, None)
    job.rest()
    (committed,) = [pickle.loads(c.data) for ack in job.acks[1].values() for s in ack.subtasks for c in s.committables]
    assert committed == list(range(9))
    (kept,) = [p for ack in job.acks[1].values() for s in ack.subtasks for p in s.parts if p.name == "buffered"]
    assert count_rows(kept.items) == 0
    job.close()


class KeyedAndNot(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.count = context.get_keyed_state_store().get_state(ValueStateDescriptor("count", Types.LONG()))
        self.all = context.get_operator_state_store().get_list_state(ListStateDescriptor("all", Types.LONG()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None: ...

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.all.add(value)
        yield ctx.get_current_key(), self.count.value(), len(list(self.all.get()))


def test_a_keyed_function_has_both_kinds_of_state() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        source = env.from_source(NumberSequenceSource(0, 59), WatermarkStrategy.no_watermarks(), "numbers")
        source.key_by(lambda x: x % 5, Types.LONG()).process(KeyedAndNot()).sink_to(CommittedRows())

    cascade = Cascade(build, 2)
    cascade.start(1)
    for _ in range(2):
        cascade.crash_after(4, 0)
        cascade.start(1)
    rows = cascade.finish()
    assert sorted((key, count) for key, count, _ in rows) == [(k, c) for k in range(5) for c in range(1, 13)]
    assert sorted(held for *_, held in rows) == list(range(1, 61))


class Fails(MapFunction, CheckpointedFunction):
    def __init__(self, where: str) -> None:
        self.where = where

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(HELD)
        if self.where == "initialize":
            raise ValueError("no start")

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if self.where == "snapshot":
            raise ValueError("no end")
        self.state.update(["no number"])

    def map(self, value: int) -> int:
        return value


@pytest.mark.parametrize("where, says", [
    ("initialize", "no start"), ("snapshot", "no end"),
    ("encode", "operator state 'held' of operator 'failing' cannot be written"),
])  # fmt: skip
def test_an_error_in_a_functions_state_names_the_operator(where: str, says: str) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        source = env.from_source(NumberSequenceSource(0, 59), WatermarkStrategy.no_watermarks(), "numbers")
        source.map(Fails(where), Types.LONG()).name("failing").sink_to(CommittedRows())

    def run() -> None:
        job = SmallJob(graph_of(build, 1))
        job.trigger(1, 0)
        job.rest()

    with pytest.raises(OperatorFailure, match=says) as raised:
        run()
    assert "failing" in str(raised.value)
