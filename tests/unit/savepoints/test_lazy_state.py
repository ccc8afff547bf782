"""Tests savepoints of state that some subtasks have not asked for: never, or not since its declaration changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Time, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.protocol.values.keys import key_group, key_group_range, key_hash
from penstock.savepoints import OperatorIdentifier, SavepointWriter
from penstock.state import read_checkpoint
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.savepoints.jobs import environment, started
from tests.unit.state.reading.jobs import BACKENDS, StoredJob

KEYS = 20
LAZY = OperatorIdentifier.for_uid("lazy")
TTL = StateTtlConfig.new_builder(Time.hours(1)).build()


class Lazy(KeyedProcessFunction):
    """Emits (key, what it keeps of the key). Asks for its state for keys of one subtask only, or for all."""

    def __init__(self, type: Any, of_subtasks: frozenset[int], expires: bool = False) -> None:
        self.type = type
        self.of_subtasks = of_subtasks
        self.expires = expires

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context

    def process_element(self, number: int, ctx: Any) -> Any:
        if self.context.get_index_of_this_subtask() in self.of_subtasks:
            descriptor = ValueStateDescriptor("seen", self.type)
            if self.expires:
                descriptor.enable_time_to_live(TTL)
            state = self.context.get_state(descriptor)
            state.update((state.value() or 0) + 1)
            yield ctx.get_current_key(), state.value()


def lazy(type: Any, of_subtasks: set[int], rows: int = 20_000, expires: bool = False) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        source = DataGeneratorSource(lambda i: i, rows, type_info=Types.LONG())
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).uid("numbers")
        numbers.set_parallelism(1)
        function = Lazy(type, frozenset(of_subtasks), expires)
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        numbers.key_by(lambda i: i % KEYS, Types.LONG()).process(function, pair).uid("lazy").sink_to(
            CommittedRows()
        ).uid("sink")

    return build


def of_subtask(subtask: int, max_parallelism: int) -> list[int]:
    groups = key_group_range(max_parallelism, 2, subtask)
    return [key for key in range(KEYS) if key_group(key_hash(key), max_parallelism) in groups]


def ran(directory: Path, build: Any, backend: str, restored: Any = None, number: int = 1) -> str:
    job = StoredJob(directory, build, options=BACKENDS[backend], restored=restored)
    for _ in range(40):
        job.run(1)
        job.clock.now_ms += 1.0
    path = job.checkpoint(number)
    job.close()
    return path


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_has_keys_of_subtasks_that_have_not_asked_for_the_state(tmp_path: Path, backend: str) -> None:
    path = ran(tmp_path / "job", lazy(Types.LONG(), {0}), backend)
    checkpoint = read_checkpoint(path)
    seen = checkpoint.keyed_state("lazy", "seen").table().column("key").to_pylist()
    assert sorted(seen) == of_subtask(0, checkpoint.operator("lazy").vertex.max_parallelism) and len(seen) < KEYS
    table = pa.table({"key": list(range(KEYS)), "value": [1000] * KEYS})
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(LAZY, "seen", table).write(str(tmp_path / "new"))
    found = read_checkpoint(written).keyed_state("lazy", "seen").table().sort_by("key")
    assert found.select(["key", "value"]).equals(table)
    for parallelism in (2, 3):
        rows = started(written, lazy(Types.LONG(), {0, 1, 2}), parallelism, backend)
        assert {key for key, _ in rows} == set(range(KEYS)) and all(count > 1000 for _, count in rows)


@pytest.mark.parametrize("backend", BACKENDS)
def test_times_of_subtasks_that_do_not_know_of_them_are_null_and_written_back(tmp_path: Path, backend: str) -> None:
    ran(tmp_path / "job", lazy(Types.LONG(), {0, 1}), backend)
    first = read_checkpoint(str(tmp_path / "job" / "chk-1")).metadata
    path = ran(tmp_path / "job", lazy(Types.LONG(), {0}, expires=True), backend, first, 2)
    table = read_checkpoint(path).keyed_state("lazy", "seen").table().sort_by("key")
    without = of_subtask(1, first.vertices[1].max_parallelism)
    times = dict(zip(table.column("key").to_pylist(), table.column("last_access_ms").to_pylist()))
    assert [key for key, time in times.items() if time is None] == without
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(LAZY, "seen", table).write(str(tmp_path / "new"))
    assert read_checkpoint(written).keyed_state("lazy", "seen").table().sort_by("key").equals(table)
    assert all(s.expires for t in read_checkpoint(written).metadata.subtasks for s in t.schemas if s.name == "seen")
    assert started(written, lazy(Types.LONG(), {0, 1}, expires=True), 2, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_of_two_types_is_read_and_written_in_the_one_that_both_become(tmp_path: Path, backend: str) -> None:
    ran(tmp_path / "job", lazy(Types.INT(), {0, 1}), backend)
    first = read_checkpoint(str(tmp_path / "job" / "chk-1")).metadata
    path = ran(tmp_path / "job", lazy(Types.LONG(), {1}), backend, first, 2)
    checkpoint = read_checkpoint(path)
    assert {s.codec for t in checkpoint.metadata.subtasks for s in t.schemas if s.name == "seen"} == {"INT", "LONG"}
    rows = checkpoint.keyed_state("lazy", "seen")
    table = rows.table().sort_by("key")
    assert table.schema.field("value").type == pa.int64() and len(table) == KEYS
    assert sorted(rows.entries()) == list(zip(*(table.column(name).to_pylist() for name in ("key", "value"))))
    assert [state.type for state in checkpoint.states() if state.name == "seen"] == ["LONG"]
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(LAZY, "seen", table).write(str(tmp_path / "new"))
    assert read_checkpoint(written).keyed_state("lazy", "seen").table().sort_by("key").equals(table)
    copied = SavepointWriter.from_existing_savepoint(environment(), path).write(str(tmp_path / "copy"))
    for of in (written, copied):
        counted = started(of, lazy(Types.LONG(), {0, 1}), 2, backend)
        assert {key for key, _ in counted} == set(range(KEYS))
