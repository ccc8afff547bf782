"""Tests windows that are kept for ever over a savepoint of a drained job: all have fired, and time begins again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.columnar import count
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.protocol.restore.drained import undrained
from penstock.protocol.values.elements import Generation
from tests.unit.operators.windows import test_window_semantics as semantics
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob

Result = tuple[int, int, int]


class Counted(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield context.window().start, context.window().end, len(list(elements))


def graph(times: list[int], windows: Any, backend: str, by_column: bool) -> JobGraph:
    config = Configuration({"parallelism.default": 1, "state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    stream = semantics.events(env, [(1, time, -1) for time in times])
    keyed: Any = stream.key_by("f0") if by_column else stream.key_by(lambda row: row[0], semantics.LONG)
    kept = keyed.window(windows).allowed_lateness(semantics.END)
    if by_column:
        made = kept.aggregate(number=count()).uid("windows").select("window_start", "window_end", "number")
    else:
        made = kept.process(Counted(), Types.TUPLE([Types.LONG()] * 3)).uid("windows")
    made.sink_to(CommittedRows()).uid("sink")
    return env.get_job_graph("job")


def results(job: SmallJob, checkpoint: int) -> tuple[Any, list[Result]]:
    job.rest()
    job.trigger(checkpoint, None)
    job.run()
    done = job.complete(checkpoint)
    job.close()
    return done.metadata, sorted(tuple(row) for row in done.committed)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("windows", "by_column", "fired"),
    [
        (TumblingEventTimeWindows(10), False, [(0, 10, 3), (30, 40, 1)]),
        (TumblingEventTimeWindows(10), True, [(0, 10, 3), (30, 40, 1)]),
        (SlidingEventTimeWindows(10, 6), False, [(0, 10, 3), (6, 16, 3), (24, 34, 1), (30, 40, 1)]),
        (SlidingEventTimeWindows(10, 6), True, [(0, 10, 3), (6, 16, 3), (24, 34, 1), (30, 40, 1)]),
        (EventTimeSessionWindows(7), False, [(6, 15, 3), (30, 37, 1)]),
    ],
)
def test_those_that_get_rows_fire_again_and_no_others(
    windows: Any, by_column: bool, fired: list[Result], backend: str
) -> None:
    job = SmallJob(graph([6, 8, 102], windows, backend, by_column))
    metadata, _ = results(job, 1)
    restored = undrained(msgspec.structs.replace(metadata, drained=True, enumerators=[]))
    again = graph([7, 30], windows, backend, by_column)
    job = SmallJob(again, restored=restored, generation=Generation(1, 2), store=job.store)
    _, found = results(job, 2)
    assert found == fired
