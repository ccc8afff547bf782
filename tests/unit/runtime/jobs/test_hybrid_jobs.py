"""Jobs that read several sources one after the other: exact through restores at any moment, at other parallelisms."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import decode_split
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import Source
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata
from penstock.storage.store import ObjectStore
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, RunningSum, finish

PARTS = (1200, 600, 1200, 600)
"""Counts the rows of each source."""
ROWS = sum(PARTS)


def hybrid() -> HybridSource:
    firsts = [sum(PARTS[:part]) for part in range(len(PARTS))]
    sources: tuple[Source, ...] = (
        NumberSequenceSource(firsts[0], firsts[1] - 1),
        CollectionSource(range(firsts[1], firsts[2]), Types.LONG()),
        NumberSequenceSource(firsts[2], firsts[3] - 1),
        DataGeneratorSource(lambda index: firsts[3] + index, PARTS[3], type_info=Types.LONG()),
    )
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder.add_source(source)
    return builder.build()


def summed(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row)
    numbers = env.from_source(hybrid(), strategy, "numbers")
    numbers.key_by(lambda row: row % 5, Types.LONG()).process(RunningSum()).sink_to(CommittedRows())


def source_of(job: SmallJob, checkpoint_id: int) -> int:
    return int(decode_split(job._snapshots[checkpoint_id][0].data)["source"])


def test_every_row_counts_once_through_restores_at_other_parallelisms() -> None:
    seen = set[int]()
    for seed in range(12):
        seen |= run_with_restores(Random(seed), f"seed {seed}")
    assert seen == set(range(1, len(PARTS) + 1)), f"checkpoints only while sources {seen} were read"


def run_with_restores(random: Random, label: str) -> set[int]:
    """Run the job over several generations. Returns the sources that were read when a checkpoint was taken."""
    rows, seen = list[Any](), set[int]()
    restored: Metadata | None = None
    store: ObjectStore | None = None
    checkpoint_id = 0
    for counter in range(8):
        kept: Any = {} if store is None else {"store": store}
        graph, generation = graph_of(summed, random.randint(1, 4)), Generation(1, counter)
        job = SmallJob(graph, Configuration(SMALL), restored=restored, generation=generation, order=random, **kept)
        store = job.store
        for _ in range(random.randint(0, 2)):
            checkpoint_id += 1
            job.run(random.randrange(2, 50))
            job.trigger(checkpoint_id, random.choice((None, 0, 1)))
            for _ in range(500):
                if job.is_acknowledged(checkpoint_id):
                    break
                job.run(10, until=lambda job=job, id=checkpoint_id: job.is_acknowledged(id))  # type: ignore[misc]
                job.clock.now_ms += 1.0
            assert job.is_acknowledged(checkpoint_id) and not job.declines
            done = job.complete(checkpoint_id)
            restored = done.metadata
            rows += done.committed
            seen.add(source_of(job, checkpoint_id))
        job.run(random.randrange(0, 20))  # and is killed
        job.close()
    kept = {} if store is None else {"store": store}
    job = SmallJob(graph_of(summed, 2), Configuration(SMALL), restored=restored, generation=Generation(1, 99), **kept)
    rows += finish(job, 1_000)
    assert sorted(value for _, value, _ in rows) == list(range(ROWS)), label
    for key in range(5):
        assert max(total for k, _, total in rows if k == key) == sum(range(key, ROWS, 5)), f"{label}, key {key}"
    job.close()
    return seen
