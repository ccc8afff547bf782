"""A subtask exists, and is asked about itself, before its state is restored and its functions are open."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from tests.unit.runtime.small_job import CommittedRows, SmallJob, graph_of


def test_a_heartbeat_and_the_end_of_a_generation_may_come_before_it_is_open() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.key_by(lambda x: x % 2).reduce(lambda a, b: a + b).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration({}))
    for vertex in job.graph.vertices:
        subtask = job._factories[1].build(vertex)
        status = subtask.status(0.0, 0.0, 0.0)
        assert (status.vertex, status.subtask, status.rows_in, status.late_rows) == (vertex.index, 1, 0, 0)
        subtask.close()
    job.close()
