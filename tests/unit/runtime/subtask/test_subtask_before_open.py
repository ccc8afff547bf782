"""A subtask exists, and is asked about itself, before its state is restored and its functions are open."""

from __future__ import annotations

import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.base import ReaderContext, SourceReader
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.subtask_runner import SubtaskRunner
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of


def test_a_heartbeat_and_the_end_of_a_generation_may_come_before_it_is_open() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.key_by(lambda x: x % 2).reduce(lambda a, b: a + b).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration({}))
    for vertex in job.graph.vertices:
        deployed = job._factories[1].build(vertex)
        runner = SubtaskRunner(deployed, job.generation, 1, job.clock, never, lambda: None, job.messages.append)
        assert runner.step() is None and not runner.is_restored, "nobody has told it to restore yet"
        status = runner.status()
        assert (status.vertex, status.subtask, status.rows_in, status.late_rows) == (vertex.index, 1, 0, 0)
        runner.revoke()
        runner.step()
        assert runner.done
    job.close()


def test_what_was_opened_is_closed_when_a_later_part_fails() -> None:
    """The reader and an earlier function hold files or connections when a function's `open` fails."""

    def build(env: StreamExecutionEnvironment) -> None:
        source = TracedSource(0, 9)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(Opens(), Types.LONG()).map(OpensNot(), Types.LONG()).sink_to(CommittedRows())

    CLOSED.clear()
    with pytest.raises(OperatorFailure, match="no model here"):
        SmallJob(graph_of(build, 1), Configuration({}))
    assert CLOSED == ["the function", "the reader"]


def never() -> Subtask:
    raise AssertionError("it may not be opened yet")


CLOSED: list[str] = []


class OpensNot(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise FileNotFoundError("no model here")

    def map(self, value: int) -> int:
        return value


class Opens(MapFunction):
    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        CLOSED.append("the function")
        raise ValueError("an error on the way out hides no other")


class TracedSource(NumberSequenceSource):
    def create_reader(self, context: ReaderContext) -> SourceReader:
        reader = super().create_reader(context)
        close = reader.close

        def traced() -> None:
            CLOSED.append("the reader")
            close()

        reader.close = traced  # type: ignore[method-assign]
        return reader
