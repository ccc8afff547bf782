"""Tests windows of a program whose allowed lateness has changed since the checkpoint: their state is still removed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.protocol.values.elements import Generation
from tests.unit.operators.windows import test_window_semantics as semantics
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob


class Counted(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield key, context.window().start, len(list(elements))


def graph(rows: list[tuple[int, int, int]], windows: Any, lateness: int) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))
    kept = semantics.keyed(env, rows).window(windows).allowed_lateness(lateness)
    kept.process(Counted(), Types.TUPLE([Types.LONG()] * 3)).uid("windows").sink_to(CommittedRows()).uid("sink")
    return env.get_job_graph("job")


def checkpointed(job: SmallJob, number: int) -> Any:
    job.trigger(number, None)
    job.run(until=lambda: job.is_acknowledged(number))
    return job.complete(number).metadata


def entries(metadata: Any) -> int:
    return sum(kept.entries for snapshot in metadata.subtasks for kept in snapshot.keyed)


@pytest.mark.parametrize(
    "windows", [TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(7)]
)
@pytest.mark.parametrize(("before", "now"), [(0, 15), (15, 0), (10, 0), (10, 30), (30, 10)])
def test_no_window_stays(windows: Any, before: int, now: int) -> None:
    rows = [(1, 3, -1), (1, 5, 12), (1, 14, -1), (1, 16, -1), *[(2, 16, -1)] * 400]
    job = SmallJob(graph(rows, windows, before))
    while not any(subtask.rows_in >= 4 for subtask in job.subtasks.values() if not subtask.vertex.is_source):
        job.run(1)
    metadata = checkpointed(job, 1)
    job.close()
    assert entries(metadata)
    restored = msgspec.structs.replace(metadata, enumerators=[])  # the rest of the rows is not read
    job = SmallJob(
        graph([(3, 200, 199)], windows, now), restored=restored, generation=Generation(1, 2), store=job.store
    )
    job.rest()
    assert not entries(checkpointed(job, 2))
    job.close()
