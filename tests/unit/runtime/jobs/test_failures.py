"""Tests what a user reads when his code raises: his operator, his lines first, his chain of causes; nothing of ours."""

from __future__ import annotations

import traceback
from enum import Enum
from typing import Any, Callable, Iterator

import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure, describe
from penstock.common.types import Types
from penstock.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.base import Sink, SinkWriter, SourceError, WriterContext
from penstock.protocol.values.messages import Message, SubtaskFailed
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.subtask.subtask_runner import SubtaskRunner
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, already_open, graph_of


def divide(row: int) -> int:
    return 1 // (row - 5)


class Mapper(MapFunction):
    def map(self, value: int) -> int:
        return divide(value)


class Expander(FlatMapFunction):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        yield divide(value)


class Filterer(FilterFunction):
    def filter(self, value: int) -> bool:
        return bool(divide(value)) or True


class Keyed(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        yield divide(value)


class FailsToOpen(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        divide(5)

    def map(self, value: int) -> int:
        return value


class FailingSink(Sink):
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return FailingWriter()


class FailingWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        divide(5)


Build = Callable[[Any], Any]
LONG = Types.LONG()


def failed(build: Build) -> SubtaskFailed:
    """Runs a job of one chain or two until a subtask fails, and returns what the JobMaster hears of it."""

    def whole(env: StreamExecutionEnvironment) -> None:
        build(env.from_collection(list(range(20)), LONG).name("rows"))

    job = SmallJob(graph_of(whole), Configuration())
    heard: list[Message] = []
    runners = [
        SubtaskRunner(s.deployed, job.generation, 0, job.clock, already_open(s), lambda: None, heard.append)
        for s in job.subtasks.values()
    ]
    for runner in runners:
        runner.may_restore()
    for _ in range(200):
        for runner in runners:
            runner.step()
        job.hand_out_splits()
        if heard:
            break
    (failure,) = heard
    assert isinstance(failure, SubtaskFailed)
    return failure


CASES: dict[str, Build] = {
    "map": lambda s: s.map(Mapper(), LONG).name("it").sink_to(CommittedRows()),
    "behind others": lambda s: s.map(lambda x: x, LONG).name("a").map(Mapper(), LONG).name("it")
    .map(lambda x: x, LONG).name("b").sink_to(CommittedRows()),
    "in a generator": lambda s: s.flat_map(Expander(), LONG).name("it").map(lambda x: x, LONG).name("b")
    .sink_to(CommittedRows()),
    "filter": lambda s: s.filter(Filterer()).name("it").sink_to(CommittedRows()),
    "keyed": lambda s: s.key_by(lambda x: x % 2, LONG).process(Keyed(), LONG).name("it").sink_to(CommittedRows()),
    "reduce": lambda s: s.key_by(lambda x: 0, LONG).reduce(lambda a, b: divide(b)).name("it")
    .sink_to(CommittedRows()),
    "key selector": lambda s: s.map(lambda x: x, LONG).name("it").key_by(divide, LONG).map(lambda x: x, LONG)
    .sink_to(CommittedRows()),
    "sink": lambda s: s.sink_to(FailingSink()).name("it"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_operator_is_named_and_his_lines_come_first(case: str) -> None:
    failure = failed(CASES[case])
    assert failure.operator.removeprefix("Sink: ").split(" ")[0] == "it"
    assert "ZeroDivisionError" in failure.error and "'it" in failure.error.replace("Sink: ", "")
    lines = failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_failures.py" in lines[1], failure.traceback
    assert lines[-1].startswith("ZeroDivisionError: ")
    assert "penstock" + "/runtime" not in failure.traceback, "none of our frames"


class Color(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("key", "declared"), [(None, None), (Color.RED, None), (None, LONG), ("text", LONG), (2**70, LONG)]
)
def test_a_key_that_has_no_encoding_is_not_restarted_for_ever(key: Any, declared: Any) -> None:
    """The row comes again after each restart."""
    failure = failed(lambda s: s.key_by(lambda row: key, declared).map(lambda x: x, LONG).sink_to(CommittedRows()))
    assert failure.reason is SubtaskFailureReason.PERMANENT, failure.error


def test_what_open_raises_is_told_like_the_rest() -> None:
    with pytest.raises(OperatorFailure) as raised:
        failed(lambda s: s.map(FailsToOpen(), LONG).name("it").sink_to(CommittedRows()))
    assert raised.value.operator == "it"
    assert "test_failures.py" in raised.value.user_traceback().splitlines()[1]


def test_the_chain_of_causes_is_kept() -> None:
    def map_(row: int) -> int:
        try:
            return divide(5)
        except ZeroDivisionError as error:
            raise ValueError(f"row {row} is no good") from error

    failure = failed(lambda s: s.map(map_, LONG).name("it").sink_to(CommittedRows()))
    assert "ZeroDivisionError" in failure.traceback and "direct cause" in failure.traceback
    assert failure.traceback.splitlines()[-1] == "ValueError: row 0 is no good"


def test_an_error_in_a_library_shows_the_line_that_called_it() -> None:
    import json

    failure = failed(lambda s: s.map(lambda x: json.loads("{"), LONG).name("it").sink_to(CommittedRows()))
    assert "test_failures.py" in failure.traceback.splitlines()[1]
    assert "decoder.py" in failure.traceback


@pytest.mark.parametrize("error", [StopIteration("no"), KeyboardInterrupt(), RecursionError("deep")])
def test_any_exception_is_the_operators(error: BaseException) -> None:
    def map_(row: int) -> int:
        raise error

    failure = failed(lambda s: s.map(map_, LONG).name("it").sink_to(CommittedRows()))
    assert "test_failures.py" in failure.traceback
    if isinstance(error, Exception):
        assert failure.operator == "it"


def test_a_row_of_the_wrong_type_is_shown_with_operator_and_no_traceback() -> None:
    failure = failed(lambda s: s.map(lambda x: "no number" if x == 7 else x, LONG).name("it").sink_to(CommittedRows()))
    assert failure.operator == "it" and failure.traceback == ""
    assert "'no number'" in failure.error


def test_what_returns_no_rows_at_all_is_named() -> None:
    failure = failed(lambda s: s.flat_map(lambda x: 7, LONG).name("it").sink_to(CommittedRows()))
    assert failure.operator == "it" and "must yield its rows" in failure.error


def test_faults_that_we_found_need_no_traceback() -> None:
    failure = OperatorFailure("it", SourceError("the file is gone"))
    assert str(failure) == "operator 'it': the file is gone" and failure.user_traceback() == ""
    assert describe(SourceError("the file is gone")) == ""


def test_an_error_of_ours_is_told_whole() -> None:
    try:
        Types.ROW_NAMED([], [])
    except ValueError as error:
        assert describe(error).splitlines()[1:] == traceback.format_exc().splitlines()[1:]


def test_after_its_generation_is_over_a_subtask_says_nothing() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection(list(range(20)), LONG).map(Mapper(), LONG).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration())
    heard: list[Message] = []
    (subtask,) = job.subtasks.values()
    runner = SubtaskRunner(subtask.deployed, job.generation, 0, job.clock, lambda: subtask, lambda: None, heard.append)
    runner.may_restore()
    runner.step()
    runner.revoke()
    runner.step()
    assert runner.done and heard == []
