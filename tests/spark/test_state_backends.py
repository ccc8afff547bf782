"""Tests state in RocksDB on a real Spark: a slot is killed, and the job is resumed in memory at another parallelism."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    JobClient,
    KeyedProcessFunction,
    StateBackend,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from tests.spark.small_jobs import (
    KEPT,
    WAIT_S,
    checkpoints,
    committed,
    environment,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 4000
KEYS = 97
RETAINED = {"execution_checkpointing_num__retained": "6"}
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Everything(KeyedProcessFunction):
    """Counts the rows of a key in each kind of state, and says so where they differ; a timer counts in a last one."""

    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()))
        self.object = runtime_context.get_state(ValueStateDescriptor("object"))

    def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
        n = (self.value.value() or 0) + 1
        self.value.update(n)
        self.list.add(row[1])
        self.map.put("rows", (self.map.get("rows") or 0) + 1)
        self.sum.add(1)
        held = self.object.value()
        if held is None:
            self.object.update(held := [])
        held.append(n)  # in place: part of the state, as in memory
        ctx.timer_service().register_processing_time_timer(n)
        found = (n, len(self.list.get()), self.map.get("rows"), self.sum.get(), len(held))
        yield f"{row[0]}:{n}" if len(set(found)) == 1 else f"{row[0]} differs: {found}"

    def on_timer(self, timestamp, ctx):  # type: ignore[no-untyped-def]
        yield f"timer {ctx.get_current_key()}:{timestamp}"


def counting(
    env: StreamExecutionEnvironment, backend: StateBackend, out: Path, rows_per_second: float | None
) -> StreamExecutionEnvironment:
    env.set_state_backend(backend)
    keyed = (
        numbers(env, ROWS, rows_per_second)
        .rebalance()
        .map(lambda i: (i % KEYS, i), PAIR)
        .key_by(lambda p: p[0], Types.LONG())
    )
    keyed.process(Everything(), Types.STRING()).uid("everything").sink_to(file_sink(out))
    return env


def known_keys(client: JobClient) -> list[int]:
    """Return how many keys there are, as the RocksDB of each subtask estimates."""
    shown = (metrics for vertex in client.report().vertices for metrics in vertex.metrics.values())
    return [metrics["rocksdb.estimate-num-keys"] for metrics in shown]


def restored_later(client: JobClient) -> list[int]:
    """Return how many bytes each subtask that has loaded everything had to load while it ran."""
    shown = [metrics for vertex in client.report().vertices for metrics in vertex.metrics.values()]
    loaded = [metrics for metrics in shown if metrics.get("restore.loaded-bytes") == metrics.get("restore.bytes")]
    return [metrics.get("restore.bytes", 0) for metrics in loaded]


@pytest.mark.parametrize(("incremental", "after"), [(True, 3), (False, 1)])
def test_a_job_with_rocksdb_survives_kills_and_is_resumed_in_memory(
    tmp_path: Path, incremental: bool, after: int
) -> None:
    root, out, local = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "local"
    backend = EmbeddedRocksDBStateBackend(incremental)
    backend.set_db_storage_paths(str(local))
    options = {
        **checkpoints(root),
        **KEPT,
        **RETAINED,
        **restarts(10),
        "penstock_state_rocksdb_object__cache__size": "20 kb",
        "state_backend_rocksdb_metrics_estimate__num__keys": "true",
        "penstock_state_rocksdb_range__size": "100 b",  # so that a restore loads state while the job runs
    }
    client = counting(environment(2, **options), backend, out, 400.0).execute_async("counting")
    wait_until(lambda: client.report().completed >= 4 and committed(out), "checkpoints")
    wait_until(lambda: len(known := known_keys(client)) == 2 and sum(known) > KEYS, "figures of both RocksDBs")
    for generation in (1, 2):
        os.kill(next(pid for pid in client.report().slot_pids if pid is not None), 9)
        wait_until(lambda: client.report().generation > generation, "the restart")
    completed = client.report().completed
    wait_until(lambda: client.report().completed >= completed + 4, "checkpoints after the kill")
    wait_until(lambda: len(restored_later(client)) == 2, "both subtasks to have loaded all")
    assert any(restored_later(client)) is incremental
    client.cancel().result(WAIT_S)
    wait_until(lambda: not list(local.iterdir()), "the end of RocksDB's files")

    job = root / str(client.get_job_id())
    named = [
        len({run.segment for run in subtask.keyed})
        for path in job.glob("chk-*/_metadata")
        for subtask in read_metadata(open_store(str(job)), f"{path.parent.name}/_metadata").subtasks
    ]
    assert (max(named) > 1) is incremental, "a subtask's state lies in several segments, or in its slot's newest"
    options = {"execution_state__recovery_path": str(job), **checkpoints(root), **restarts(10)}
    counting(environment(after, **options), HashMapStateBackend(), out, None).execute_async("counting").wait(
        timeout_ms=WAIT_S * 1000
    )
    counts = {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
    lines = [f"{key}:{n}" for key, rows in counts.items() for n in range(1, rows + 1)]
    assert committed(out) == dict.fromkeys([*lines, *(f"timer {line}" for line in lines)], 1)


def summing(
    env: StreamExecutionEnvironment, backend: StateBackend, out: Path, rows_per_second: float | None
) -> StreamExecutionEnvironment:
    env.set_state_backend(backend)
    named = Types.ROW_NAMED(["key", "one"], [Types.LONG(), Types.LONG()])
    rows = numbers(env, ROWS, rows_per_second).rebalance().map(lambda i: (i % KEYS, 1), named)
    sums = rows.key_by("key").sum("one").uid("sums")
    sums.map(lambda row: f"{row[0]}:{row[1]}", Types.STRING()).sink_to(file_sink(out))
    return env


@pytest.mark.parametrize("before", [EmbeddedRocksDBStateBackend(), HashMapStateBackend()])
def test_columnar_state_survives_kills_and_is_resumed_in_the_other_backend(
    tmp_path: Path, before: StateBackend
) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    after: StateBackend = HashMapStateBackend()
    if isinstance(before, HashMapStateBackend):
        after = EmbeddedRocksDBStateBackend()
    incremental = {"execution_checkpointing_incremental": "true"}
    options = {**checkpoints(root), **KEPT, **RETAINED, **restarts(10), **incremental}
    client = summing(environment(2, **options), before, out, 400.0).execute_async("sums")
    wait_until(lambda: client.report().completed >= 4 and committed(out), "checkpoints")
    os.kill(next(pid for pid in client.report().slot_pids if pid is not None), 9)
    wait_until(lambda: client.report().generation > 1, "the restart")
    completed = client.report().completed
    wait_until(lambda: client.report().completed >= completed + 4, "checkpoints after the kill")
    client.cancel().result(WAIT_S)

    job = root / str(client.get_job_id())
    options = {"execution_state__recovery_path": str(job), **checkpoints(root), **restarts(10), **incremental}
    summing(environment(3, **options), after, out, None).execute_async("sums").wait(timeout_ms=WAIT_S * 1000)
    counts = {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
    assert committed(out) == {f"{key}:{n}": 1 for key, rows in counts.items() for n in range(1, rows + 1)}
