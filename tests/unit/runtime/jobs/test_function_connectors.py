"""Tests functions as sources and sinks, and what else of PyFlink's names runs: collections of dicts, projections."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.row_types.row import Row
from penstock.common.types import Types
from penstock.datastream import CheckpointedFunction, SinkFunction, SourceFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor
from penstock.protocol.values.elements import Generation
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, TIMEOUTS, finish, run_with_checkpoint

ROWS = 60


class Counter(SourceFunction):
    """Has a pause after every third row."""

    def __init__(self) -> None:
        self.next = 0

    def run(self) -> Any:
        while self.next < ROWS:
            self.next += 1
            yield self.next
            if self.next % 3 == 0:
                yield None


class KeptCounter(Counter, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", Types.LONG()))
        self.next = next(iter(self.state.get()), 0)

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])


def rows_of(build: Any) -> list[Any]:
    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    try:
        return finish(job, 1)
    finally:
        job.close()


def test_a_function_ends_its_source_and_one_subtask_runs_it() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Counter(), "counter", Types.LONG())
        assert stream.get_parallelism() == 1 and stream.get_name() == "Source: counter"
        stream.set_parallelism(1).sink_to(CommittedRows()).set_parallelism(1)

    assert rows_of(build) == list(range(1, ROWS + 1))


def test_plain_functions_are_sources_and_sinks() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(lambda: (letter for letter in "abc")).sink_to(CommittedRows()).set_parallelism(1)
        env.add_source(lambda: iter(())).add_sink(print)

    assert rows_of(build) == ["a", "b", "c"]


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_function_with_state_continues_where_a_checkpoint_was_taken(mode: str, seed: int) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(KeptCounter(), "counter", Types.LONG()).map(lambda n: n).sink_to(CommittedRows())

    random = Random(seed)
    first = SmallJob(graph_of(build, 2), Configuration(SMALL), order=random)
    done = run_with_checkpoint(first, random.randrange(3, 40), TIMEOUTS[mode])
    first.close()
    after = SmallJob(
        graph_of(build, 2),
        Configuration(SMALL),
        store=first.store,
        restored=done.metadata,
        generation=Generation(1, 1),
        order=random,
    )
    assert sorted(done.committed + finish(after, 2)) == list(range(1, ROWS + 1))
    after.close()


class Kept(SinkFunction):
    rows: list[Any] = []
    opened: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.opened.append(runtime_context.get_task_name_with_subtasks())

    def invoke(self, value: Any) -> None:
        self.rows.append(value)

    def close(self) -> None:
        self.opened.append("closed")


def test_a_function_takes_the_rows_of_a_stream() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        sink = env.from_collection([1, 2, 3], Types.LONG()).add_sink(Kept()).set_parallelism(1)
        assert sink.get_name() == "Sink: Unnamed"
        sink.name("kept")

    rows_of(build)
    assert Kept.rows == [1, 2, 3] and Kept.opened == ["kept (1/1)", "closed"]


def test_sources_and_sinks_have_no_keyed_state() -> None:
    class Wrong(SinkFunction):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(None)

        def invoke(self, value: Any) -> None: ...

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1]).add_sink(Wrong())

    with pytest.raises(Exception, match="'Sink: Unnamed' asks for keyed state, which sources and sinks do not have"):
        rows_of(build)


def test_what_is_no_function_is_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(TypeError, match="has parameters"):
        env.add_source(lambda row: [row])
    with pytest.raises(TypeError, match="takes a Source"):
        env.add_source(5)
    with pytest.raises(TypeError, match="takes a Sink"):
        env.from_collection([1]).add_sink(5)
    with pytest.raises(TypeError, match="takes a list or another iterable of rows, got 5"):
        env.from_collection(5)  # type: ignore[call-overload]


class Point:
    def __init__(self, x: int, y: str) -> None:
        self.x = x
        self.y = y


def test_rows_of_a_collection_may_be_dicts_lists_and_objects() -> None:
    row_type = Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.STRING()])
    given = [{"y": "a", "x": 1}, {"x": 2}, Point(3, "b"), [4, "c"], (5, "d"), Row(6, "e"), Row(y="f", x=7)]

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_collection(iter(given), row_type)
        rows.map(tuple).set_parallelism(1).sink_to(CommittedRows()).set_parallelism(1)

    assert rows_of(build) == [(1, "a"), (2, None), (3, "b"), (4, "c"), (5, "d"), (6, "e"), (7, "f")]


def test_a_projection_keeps_fields_in_its_order() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        pairs = env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.LONG()]))
        pairs.project(1, 0).set_parallelism(1).sink_to(CommittedRows()).set_parallelism(1)

    assert rows_of(build) == [(1, "a"), (2, "b")]
