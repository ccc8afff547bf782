"""Tests savepoints that programs read, change and make, and jobs that start from them: exact, in every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common import Types
from penstock.common.options import CheckpointingOptions
from penstock.datastream import CheckpointedFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor
from penstock.savepoints import (
    BroadcastStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    StateBootstrapFunction,
    state_table,
)
from penstock.state import read_checkpoint
from penstock.storage.layout import is_savepoint_segment
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.savepoints.jobs import (
    KEYS,
    Bootstrap,
    ReadEverything,
    environment,
    half,
    started,
    totals,
    whole,
)
from tests.unit.state.reading.jobs import BACKENDS, RULES, keyed, stored

# ---- copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("timeout_ms", [None, 0], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_copy_is_self_contained_and_a_job_that_starts_from_it_is_exact(
    tmp_path: Path, backend: str, timeout_ms: int | None, codec: str
) -> None:
    path, before = half(tmp_path / "job", backend, timeout_ms)
    copy = SavepointWriter.from_existing_savepoint(environment(), path)
    written = copy.with_configuration(CheckpointingOptions.SNAPSHOT_COMPRESSION, codec).write(str(tmp_path / "copy"))
    for file in sorted((tmp_path / "job").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    metadata = read_checkpoint(written).metadata
    assert all(is_savepoint_segment(segment.path) for segment in metadata.segments)
    assert len(metadata.segments) == 2 and {s.path.endswith(".zstd") for s in metadata.segments} == {codec == "zstd"}
    assert all(len({run.segment for run in subtask.keyed}) <= 1 for subtask in metadata.subtasks)
    assert CliRunner().invoke(app, ["state", "verify", written]).exit_code == 0
    for parallelism in (2, 3):
        assert sorted(before + started(written, totals(), parallelism, backend), key=str) == sorted(whole(), key=str)
    assert CliRunner().invoke(app, ["savepoint", "--dispose", written]).exit_code == 0
    assert not Path(written).exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_is_renamed(tmp_path: Path, backend: str) -> None:
    path, before = half(tmp_path / "job", backend, 0)
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    writer.change_operator_identifier(OperatorIdentifier.for_uid("totals"), OperatorIdentifier.for_uid("sums"))
    written = writer.write(str(tmp_path / "renamed"))
    assert [o.uid for o in read_checkpoint(written).operators] == ["numbers", "sums", "sink"]
    after = started(written, totals("sums"), 3)
    assert sorted(before + after, key=str) == sorted(whole(), key=str)


def test_an_operator_is_removed_and_made_anew_of_rows(tmp_path: Path) -> None:
    path, before = half(tmp_path / "job")
    seen = len(before)
    table = read_checkpoint(path).keyed_state("totals", "total").table()
    rows = [(key, total + 1_000_000) for key, total in zip(*(table.column(c).to_pylist() for c in ("key", "value")))]
    operator = OperatorIdentifier.for_uid("totals")
    transformation = OperatorTransformation.bootstrap_with(rows).key_by(lambda r: r[0]).transform(Bootstrap())
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    writer.remove_operator(operator).with_operator(operator, transformation)
    after = started(writer.write(str(tmp_path / "changed")), totals())
    expected = []
    for key, total, last in whole()[seen:]:
        expected.append(
            (key, total + 1_000_000, "bootstrapped" if last is None or int(last.split()[1]) < seen else last)
        )
    assert sorted(after) == sorted(expected)


@pytest.mark.parametrize("type", [pa.string(), pa.large_string()])
def test_strings_of_more_than_an_array_of_them_can_have_are_written(
    tmp_path: Path, type: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "_OFFSET_MAX", 16)  # of 2 GB
    path, _ = half(tmp_path / "job", "hashmap")
    table = read_checkpoint(path).keyed_state("totals", "last").table()
    changed = table.set_column(2, "value", pc.utf8_upper(table.column("value")))
    given = changed.set_column(2, "value", changed.column("value").cast(type))
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    totals_uid = OperatorIdentifier.for_uid("totals")
    written = writer.with_keyed_state(totals_uid, "last", given).write(str(tmp_path / "new"))
    assert read_checkpoint(written).keyed_state("totals", "last").table().sort_by("key").equals(changed.sort_by("key"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_state_is_replaced_by_a_table(tmp_path: Path, backend: str) -> None:
    path, before = half(tmp_path / "job", backend)
    table = read_checkpoint(path).keyed_state("totals", "total").table()
    changed = table.set_column(2, "value", pc.multiply(table.column("value"), -1))
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(OperatorIdentifier.for_uid("totals"), "total", changed).write(
        str(tmp_path / "new")
    )
    found = read_checkpoint(written).keyed_state("totals", "total").table()
    assert found.sort_by("key").equals(changed.sort_by("key"))
    kept = [read_checkpoint(p).keyed_state("totals", "last").table().sort_by("key") for p in (path, written)]
    assert kept[0] == kept[1]
    sums = dict(zip(*(changed.column(c).to_pylist() for c in ("key", "value"))))
    expected = []
    for number, (key, _, last) in list(enumerate(whole()))[len(before) :]:
        sums[key] = sums.get(key, 0) + number
        expected.append((key, sums[key], last))
    assert sorted(started(written, totals(), 3, backend)) == sorted(expected)


# ---- made of rows -------------------------------------------------------------------------------------------------


class BootstrapWithTimers(Bootstrap):
    def process_element(self, row: Any, ctx: Any) -> None:
        super().process_element(row, ctx)
        ctx.timer_service().register_event_time_timer(50 + row[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_starts_from_state_that_was_made_of_rows(tmp_path: Path, backend: str, parallelism: int) -> None:
    env = environment(2, **BACKENDS[backend])
    rows = [(i % KEYS, 1000) for i in range(3 * KEYS)]
    made = OperatorTransformation.bootstrap_with(rows).key_by(lambda row: row[0]).transform(BootstrapWithTimers())
    written = (
        SavepointWriter.new_savepoint(env, 128)
        .with_operator(OperatorIdentifier.for_uid("totals"), made)
        .write(str(tmp_path / "new"))
    )
    assert len(read_checkpoint(written).metadata.segments) == 2
    timers = [r.table() for r in read_checkpoint(written).timers("totals")]
    assert sorted(timers[0].column("timestamp").to_pylist()) == [50 + key for key in range(KEYS)]
    after = started(written, totals(), parallelism, backend)
    expected = whole(dict.fromkeys(range(KEYS), 3000), dict.fromkeys(range(KEYS), "bootstrapped"))
    assert sorted(after) == sorted([*expected, *((key, -50 - key, "timer") for key in range(KEYS))])


def test_rows_come_from_arrow_tables_by_the_names_of_their_fields(tmp_path: Path) -> None:
    class OfFields(Bootstrap):
        def process_element(self, row: Any, ctx: Any) -> None:
            assert ctx.get_current_key() == row.user == row["user"]
            self.total.update(row.amount)

    table = pa.table({"user": ["a", "b", "c"], "amount": [1, 2, 3]})
    made = OperatorTransformation.bootstrap_with(table).key_by("user").transform(OfFields()).set_max_parallelism(16)
    operator = OperatorIdentifier.for_uid("totals")
    written = SavepointWriter.new_savepoint(environment()).with_operator(operator, made).write(str(tmp_path / "new"))
    found = read_checkpoint(written).keyed_state("totals", "total").table().sort_by("key")
    assert found.select(["key", "value"]).equals(pa.table({"key": ["a", "b", "c"], "value": [1, 2, 3]}))
    assert read_checkpoint(written).operator("totals").vertex.max_parallelism == 16


class Held(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.held = store.get_list_state(ListStateDescriptor("held", Types.LONG()))
        self.all = store.get_union_list_state(ListStateDescriptor("all", Types.LONG()))
        self.start = sum(self.held.get()), sum(self.all.get())

    def snapshot_state(self, context: Any) -> None: ...

    def map(self, value: int) -> Any:
        return value, *self.start


class BootstrapHeld(StateBootstrapFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.held = store.get_list_state(ListStateDescriptor("held", Types.LONG()))
        self.all = store.get_union_list_state(ListStateDescriptor("all", Types.LONG()))
        assert not context.is_restored()

    def process_element(self, value: Any, ctx: Any) -> None:
        self.held.add(value)

    def snapshot_state(self, context: Any) -> None:
        self.all.update([sum(self.held.get())])


class BootstrapRules(BroadcastStateBootstrapFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(f"rule {value}", value)


def test_operator_state_and_broadcast_state_are_made_of_rows(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1], Types.LONG()).map(Held()).uid("held").sink_to(CommittedRows())

    held = OperatorTransformation.bootstrap_with([5, 6, 7]).transform(BootstrapHeld())
    rules = OperatorTransformation.bootstrap_with([8, 9]).transform(BootstrapRules())
    writer = SavepointWriter.new_savepoint(environment())
    writer.with_operator(OperatorIdentifier.for_uid("held"), held)
    written = writer.with_operator(OperatorIdentifier.for_uid("ruled"), rules).write(str(tmp_path / "new"))
    reader = SavepointReader.read(environment(), written)
    assert reader.read_list_state("held", "held", Types.LONG()) == [5, 6, 7]
    assert reader.read_union_state("held", "all", Types.LONG()) == [18]
    assert reader.read_broadcast_state("ruled", "rules", Types.STRING(), Types.LONG()) == {"rule 8": 8, "rule 9": 9}
    writer = SavepointWriter.from_existing_savepoint(environment(), written)
    written = writer.remove_operator(OperatorIdentifier.for_uid("ruled")).write(str(tmp_path / "held"))
    assert started(written, build, 1) == [(1, 18, 18)]


# ---- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_reads_key_by_key(tmp_path: Path, backend: str) -> None:
    path = stored(tmp_path / "job", keyed, backend=backend)
    checkpoint = read_checkpoint(path)
    sums, lists = (dict(checkpoint.keyed_state("everything", name).entries()) for name in ("sum", "list"))
    timers = checkpoint.timers("everything")[0].table().column("key").to_pylist()
    read = list(SavepointReader.read(environment(), path).read_keyed_state("everything", ReadEverything()))
    expected = [(key, total, key, lists.get(key, []), timers.count(key)) for key, total in sums.items()]
    assert sorted(read) == sorted(expected) and read
