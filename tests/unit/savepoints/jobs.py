"""Declares jobs of one keyed operator, which start from savepoints and continue exactly."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.protocol.restore.drained import undrained
from penstock.savepoints import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
)
from penstock.state import read_checkpoint
from penstock.storage.local import LocalStore
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import finished
from tests.unit.runtime.jobs.test_small_jobs import SMALL
from tests.unit.state.reading.jobs import BACKENDS, StoredJob

KEYS = 11
ROWS = 600
TOTAL = ValueStateDescriptor("total", Types.LONG())
LAST = ValueStateDescriptor("last", Types.STRING())


def environment(parallelism: int = 2, **options: str) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration(options)).set_parallelism(parallelism)


class Totals(KeyedProcessFunction):
    """Emits (key, running total, what it last saw of the key)."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_state(LAST)

    def process_element(self, number: int, ctx: Any) -> Any:
        total = (self.total.value() or 0) + number
        self.total.update(total)
        before = self.last.value()
        self.last.update(f"number {number}")
        yield ctx.get_current_key(), total, before

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, "timer"


def totals(uid: str = "totals", rows: int = ROWS) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        source = DataGeneratorSource(lambda i: i, rows, type_info=Types.LONG())
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).uid("numbers")
        numbers.set_parallelism(1)
        keyed = numbers.key_by(lambda i: i % KEYS, Types.LONG())
        keyed.process(Totals(), Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING()])).uid(uid).sink_to(
            CommittedRows()
        ).uid("sink")

    return build


def started(path: str, build: Any, parallelism: int = 2, backend: str = "hashmap") -> list[Any]:
    """The rows of a job that starts from a savepoint and runs to its end."""
    options = {**SMALL, **BACKENDS[backend]}
    own = f"{path}-{uuid.uuid4().hex}"  # the job's checkpoints do not go into the savepoint
    store = LocalStore(shutil.copytree(path, own))
    metadata = undrained(read_checkpoint(path).metadata)
    job = SmallJob(graph_of(build, parallelism, **options), Configuration(options), store=store, restored=metadata)
    try:
        return finished(job, metadata.checkpoint_id + 1)
    finally:
        job.close()


def half(directory: Path, backend: str = "hashmap", timeout_ms: int | None = None) -> tuple[str, list[Any]]:
    """A checkpoint in the middle of the job, and the rows that were committed with it."""
    job = StoredJob(directory, totals(), options=BACKENDS[backend])
    rows: list[Any] = []
    path = ""
    for checkpoint_id in (1, 2):
        job.run(4)
        path = job.checkpoint(checkpoint_id, timeout_ms)
        rows += job.committed
    job.close()
    return path, rows


def whole(start: dict[int, int] | None = None, last: dict[int, str] | None = None) -> list[Any]:
    """The rows of an undisturbed job."""
    sums, seen, rows = dict(start or {}), dict(last or {}), []
    for number in range(ROWS):
        key = number % KEYS
        sums[key] = sums.get(key, 0) + number
        rows.append((key, sums[key], seen.get(key)))
        seen[key] = f"number {number}"
    return rows


class Bootstrap(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.last = runtime_context.get_state(LAST)

    def process_element(self, row: Any, ctx: Any) -> None:
        assert ctx.get_current_key() == row[0]
        self.total.update((self.total.value() or 0) + row[1])
        self.last.update("bootstrapped")


class ReadEverything(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.STRING()))

    def read_key(self, key: Any, ctx: Any) -> Any:
        yield key, self.sum.value(), self.map["key"], list(self.list), len(ctx.registered_event_time_timers())
        assert ctx.registered_processing_time_timers() == {4_000_000_000_000}
