"""Tests an environment that is used for more than one job, and settings that change while a program is declared."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Types
from penstock.common.options import ParallelismOptions
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from tests.unit.datastream.test_event_time import MONOTONOUS, At


def names(env: StreamExecutionEnvironment) -> list[list[str]]:
    return [[operator.name for operator in vertex.operators] for vertex in env.get_job_graph().vertices]


def test_a_stream_can_be_used_again_after_its_job(env: StreamExecutionEnvironment) -> None:
    """The next job holds what the stream is made of, and none of the sinks of the job before."""
    numbers = env.from_collection([1, 2], Types.LONG()).map(abs, Types.LONG()).name("abs")
    numbers.sink_to(DiscardingSink()).name("first")
    env.execute()
    numbers.sink_to(DiscardingSink()).name("second")
    assert names(env) == [["Source: Collection Source"], ["abs", "second"]]
    env.execute()
    timed = numbers.assign_timestamps_and_watermarks(MONOTONOUS.with_timestamp_assigner(At()))
    timed.union(numbers).sink_to(DiscardingSink()).name("third")
    found = [name for chain in names(env) for name in chain]
    assert found == ["Source: Collection Source", "abs", "Timestamps/Watermarks", "third"]


def test_keyed_and_connected_streams_can_be_used_again(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1], Types.LONG()).key_by(lambda i: i, Types.LONG())
    other = env.from_collection([2], Types.LONG())
    keyed.reduce(max).sink_to(DiscardingSink())
    other.sink_to(DiscardingSink())
    env.execute()
    keyed.reduce(min).union(other).sink_to(DiscardingSink())
    assert len(env.get_job_graph().vertices) == 4


def parallelism(env: StreamExecutionEnvironment) -> dict[str, int]:
    return {operator.name: v.parallelism for v in env.get_job_graph().vertices for operator in v.operators}


def test_the_default_parallelism_is_that_of_the_moment_of_declaration(env: StreamExecutionEnvironment) -> None:
    def declare(stream: Any, name: str) -> Any:
        return stream.map(abs, Types.LONG()).name(name)

    first = declare(env.from_collection([1], Types.LONG()), "two")
    env.set_parallelism(3)
    second = declare(declare(first, "three"), "five").set_parallelism(5)
    env.get_configuration().set(ParallelismOptions.DEFAULT_PARALLELISM, 4)
    declare(second, "four").sink_to(DiscardingSink()).name("also four")
    env.set_parallelism(7)
    found = parallelism(env)
    assert found == {"Source: Collection Source": 1, "two": 2, "three": 3, "five": 5, "four": 4, "also four": 4}


def test_collected_rows_come_from_one_writer(env: StreamExecutionEnvironment, executor: Any) -> None:
    """Two writers put a checkpoint's rows of one before those of the other, and `limit` cut off one of them."""
    env.from_collection([1], Types.LONG()).map(abs, Types.LONG()).execute_and_collect()
    assert [v.parallelism for v in executor.submitted[0][0].vertices] == [1, 2, 1]


def endless(env: StreamExecutionEnvironment) -> Any:
    source = DataGeneratorSource(abs, None, type_info=Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks")


def test_rows_that_would_never_come_are_not_waited_for(env: StreamExecutionEnvironment, executor: Any) -> None:
    """Limits rows of a job without checkpoints, which come at its end: even a limit was waited for for ever."""
    rows = endless(env).map(abs, Types.LONG())
    for limit in (None, 5):
        with pytest.raises(ValueError, match=r"'Source: clicks' has no end: take checkpoints \(env.enable_check"):
            rows.execute_and_collect(limit=limit)
    assert not executor.submitted
    env.enable_checkpointing(1000)
    rows.execute_and_collect()
    assert len(executor.submitted) == 1


def test_an_endless_stream_of_an_earlier_job_has_no_end_either(env: StreamExecutionEnvironment) -> None:
    rows = endless(env)
    rows.sink_to(DiscardingSink())
    env.execute()
    with pytest.raises(ValueError, match=r"to_spark\(\) runs the job to its end, and 'Source: clicks' has none"):
        rows.to_spark()
