"""Runs real jobs whose checkpoints lie in a directory: every kind of state, in every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.columnar import count, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource, DataGeneratorSource
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.protocol.values.metadata import Metadata
from penstock.storage.local import LocalStore
from penstock.storage.metadata_file import encode_metadata
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import checkpointed
from tests.unit.runtime.jobs.test_small_jobs import SMALL

KEYS = 37
USERS = 5003
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
POINT = Types.ROW_NAMED(["x", "label"], [Types.LONG(), Types.STRING()])
BACKENDS: dict[str, dict[str, str]] = {
    "hashmap": {},
    "hashmap-incremental": {"execution.checkpointing.incremental": "true"},
    "rocksdb": {"state.backend.type": "rocksdb"},
    "rocksdb-incremental": {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
}


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: int, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Everything(KeyedProcessFunction):
    """Keeps rows (key, number) in every kind of keyed state, and a timer of each time domain."""

    def open(self, runtime_context: Any) -> None:
        context = runtime_context
        self.sum = context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.point = context.get_state(ValueStateDescriptor("point", POINT))
        self.object = context.get_state(ValueStateDescriptor("object"))
        self.list = context.get_list_state(ListStateDescriptor("list", Types.STRING()))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.most = context.get_reducing_state(ReducingStateDescriptor("most", max, Types.LONG()))
        self.mean = context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), PAIR))

    def process_element(self, row: Any, ctx: Any) -> Any:
        key, number = row[0], row[1]
        self.sum.update((self.sum.value() or 0) + number)
        self.point.update((number, f"label {number}"))
        self.object.update({"last": number})
        self.list.add(f"n{number}")
        self.map.put("last", number)
        self.map.put("key", ctx.get_current_key() if isinstance(key, int) else len(key))
        self.most.add(number)
        self.mean.add(number)
        ctx.timer_service().register_event_time_timer(10_000_000 + number)
        ctx.timer_service().register_processing_time_timer(4_000_000_000_000)
        if number % 5 == 4:  # so that incremental checkpoints have deletions
            self.list.clear()
        yield number


class Remembering(MapFunction, CheckpointedFunction):
    """Has operator state: how many rows it has seen, in a list and in a union list."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.all = store.get_union_list_state(ListStateDescriptor("all", Types.STRING()))
        self.rows = 0

    def snapshot_state(self, context: Any) -> None:
        self.seen.update([self.rows])
        self.all.update([f"rows {self.rows}"])

    def map(self, value: Any) -> Any:
        self.rows += 1
        return value


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class WithRules(KeyedBroadcastProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row

    def process_broadcast_element(self, rule: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(f"rule {rule}", rule)
        return []


def keyed(env: StreamExecutionEnvironment, rows: int = 20_000, first: int = 0, texts: bool = False) -> None:
    """Keys are numbers, or texts; row i has the key i % KEYS."""
    key_type = Types.STRING() if texts else Types.LONG()
    source = DataGeneratorSource(lambda i: i + first, rows, type_info=Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).uid("numbers")
    numbers.set_parallelism(1)  # so that each key's rows come in order
    pairs = (
        numbers.map(lambda i: (f"k{i % KEYS}" if texts else i % KEYS, i), Types.TUPLE([key_type, Types.LONG()]))
        .uid("pairs")
        .set_parallelism(1)
    )
    pairs.key_by(lambda p: p[0], key_type).process(Everything(), Types.LONG()).uid("everything").map(
        Remembering(), Types.LONG()
    ).uid("remembering").sink_to(CommittedRows()).uid("sink")


def with_rules(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_source(
        DataGeneratorSource(lambda i: i, 50, type_info=Types.LONG()), WatermarkStrategy.no_watermarks(), "numbers"
    )
    rules = env.from_collection([1, 2, 3], Types.LONG()).broadcast(RULES)
    numbers.key_by(lambda i: i, Types.LONG()).connect(rules).process(WithRules(), Types.LONG()).uid("ruled").sink_to(
        CommittedRows()
    )


EVENT_ROWS = 200_000
EVENTS = Types.ROW_NAMED(["user", "value", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])


def events(first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    users = pa.array([f"user {n % USERS}" for n in numbers])
    arrays = [users, pa.array(list(numbers)), pa.array([n * 2 for n in numbers])]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS.schema)


def _events(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
    strategy = strategy.with_timestamp_assigner(lambda row, _: row["at"])
    return env.from_source(BatchGeneratorSource(events, EVENT_ROWS, EVENTS), strategy, "events").set_parallelism(1)


def aggregates(env: StreamExecutionEnvironment) -> None:
    _events(env).key_by("user").aggregate(total=sum_("value"), rows=count()).uid("totals").sink_to(CommittedRows())


def columnar_windows(env: StreamExecutionEnvironment) -> None:
    windowed = _events(env).key_by("user").window(TumblingEventTimeWindows.of(Time.milliseconds(500)))
    windowed.aggregate(total=sum_("value")).uid("windows").sink_to(CommittedRows())


def row_windows(env: StreamExecutionEnvironment) -> None:
    rows = _events(env).map(lambda row: (row["user"], row["value"]), Types.TUPLE([Types.STRING(), Types.LONG()]))
    windowed = rows.key_by(lambda r: r[0], Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.milliseconds(500), Time.milliseconds(100))
    )
    windowed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows").sink_to(CommittedRows())


class StoredJob(SmallJob):
    """A job whose checkpoints are written to its directory; each may name what its predecessor has stored."""

    def __init__(
        self,
        directory: Path,
        build: Any,
        parallelism: int = 2,
        options: Any = None,
        restored: Metadata | None = None,
    ) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        options = {**SMALL, "pipeline.auto-watermark-interval": "1 ms", **(options or {})}
        self.options = options
        super().__init__(
            graph_of(build, parallelism, **options),
            Configuration(options),
            LocalStore(str(directory), fsync=False),
            restored=restored,
            names_predecessors=True,
        )

    def checkpoint(self, checkpoint_id: int, timeout_ms: int | None = None) -> str:
        """Take a checkpoint, and return its path."""
        completed = checkpointed(self, checkpoint_id, timeout_ms)
        self.metadata: Metadata = completed.metadata
        self.committed = completed.committed
        self.store.create(f"chk-{checkpoint_id}/_metadata", encode_metadata(completed.metadata))
        return str(self.directory / f"chk-{checkpoint_id}")


def stored(directory: Path, build: Any, *, turns: int = 40, backend: str = "hashmap", parallelism: int = 2) -> str:
    """Run a job for so many turns, take a checkpoint, and return its path. Incremental ones have predecessors."""
    job = StoredJob(directory, build, parallelism, BACKENDS[backend])
    ids = (1, 2, 3) if "incremental" in backend else (1,)
    path = ""
    for checkpoint_id in ids:
        for _ in range(turns if checkpoint_id == 1 else 2):
            job.run(1)
            job.clock.now_ms += 1.0
        path = job.checkpoint(checkpoint_id)
    job.close()
    return path
