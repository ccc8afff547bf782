"""Tests a chain of incremental checkpoints in a bucket of SeaweedFS: a new job starts from it, commands and programs
read it, and a savepoint is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common import Configuration, Types
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.savepoints import KeyedStateReaderFunction, OperatorIdentifier, SavepointReader, SavepointWriter
from penstock.state import read_checkpoint
from tests.spark.chained_state import (
    FILES_CHAINED,
    INCREMENTAL,
    KEYS,
    UID,
    chained,
    counts_after,
    files_of_state,
    is_chained,
    last_after,
    lines_after,
)
from tests.spark.conftest import every_spark_is_quick, quick_session, spark_session
from tests.spark.small_jobs import KEPT, WAIT_S, committed, wait_until
from tests.stores.buckets_listed import unnamed
from tests.stores.conftest import started
from tests.stores.test_data_frames import Place
from tools.object_stores import SECRET_KEY, Server

__all__ = ["every_spark_is_quick", "quick_session", "spark_session"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.usefixtures("quick_session")]

ROWS = 60_000
ROWS_PER_SECOND = 2_000.0
RETAINED = {"execution_checkpointing_num__retained": "3"}
OPTIONS = {**INCREMENTAL, **KEPT, **RETAINED}
CHAINED = OperatorIdentifier.for_uid(UID)
ADDED = 1_000


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started("seaweedfs", tmp_path_factory.mktemp("seaweedfs"))
    for bucket in ("first", "second"):
        running.make_bucket(bucket)
    yield running
    running.stop()


class Stopped(NamedTuple):
    """Describes a job that was cancelled on its way. `checkpoints`: the locations of those that it retains, oldest
    first. `rows`: how many rows are in the newest.
    """

    place: Place
    out: Path
    checkpoints: list[str]
    rows: int

    @property
    def newest(self) -> str:
        return self.checkpoints[-1]

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.place.server.options)

    def listed(self) -> dict[str, int]:
        """Return the names and sizes of all that is in its bucket."""
        return {found.path: found.size_bytes for found in self.place.store.objects("")}


@pytest.fixture(scope="module")
def stopped(weed: Server, quick_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    place, out = Place(weed, "s3://first/jobs"), tmp_path_factory.mktemp("out")
    env = place.environment(**OPTIONS)
    chained(env, out, ROWS, ROWS_PER_SECOND)
    client = env.execute_async("chained")
    job = f"{place.root}/{client.get_job_id()}"
    wait_until(lambda: sum(v.rows_in for v in client.report().vertices) > 3 * KEYS, "all keys")
    wait_until(lambda: is_chained(job, Configuration(weed.options)), "a chain")
    client.cancel().result(WAIT_S)
    ids = sorted(int(path.split("/")[-2][4:]) for path in place.store.list("") if path.endswith("/_metadata"))
    checkpoints = [f"{job}/chk-{number}" for number in ids]
    newest = read_checkpoint(checkpoints[-1], Configuration(weed.options))
    assert len(checkpoints) == 3 and files_of_state(newest.metadata) >= FILES_CHAINED
    counts = dict(newest.keyed_state(UID, "count").entries())
    return Stopped(place, out, checkpoints, sum(counts.values()))


@pytest.fixture
def configured(stopped: Stopped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the options of the store to commands, and to programs that are given none, as docs/storage.md says."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stopped.place.server.options), encoding="utf-8")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))


def penstock_state(*arguments: str) -> Any:
    shown = CliRunner().invoke(app, ["state", *arguments])
    assert SECRET_KEY not in shown.output
    return shown


def count_of(path: str) -> dict[int, int]:
    return dict(read_checkpoint(path).keyed_state(UID, "count").entries())


# ---- reading, by commands and programs --------------------------------------------------------------------------


@pytest.mark.usefixtures("configured")
def test_commands_inspect_verify_and_compare_checkpoints_in_a_bucket(stopped: Stopped) -> None:
    shown = penstock_state("inspect", stopped.newest, "--json")
    assert shown.exit_code == 0, shown.stderr
    states = {state["name"]: state for state in json.loads(shown.stdout)["states"]}
    assert {(name, state["operator"]) for name, state in states.items()} == {("count", UID), ("last", UID)}
    job = stopped.newest.rpartition("/")[0]
    shown = penstock_state("verify", job)
    assert shown.exit_code == 0 and shown.stdout.count("is whole: ") == 3, "all that the job retains"

    older = stopped.checkpoints[0]
    before, after = count_of(older), count_of(stopped.newest)
    shown = penstock_state("diff", older, stopped.newest, "--json", "--examples", "100")
    assert shown.exit_code == 1, shown.stderr
    told = next(state for state in json.loads(shown.stdout)["states"] if state["name"] == "count")
    changed = [key for key in after if before[key] != after[key]]
    assert (told["added"], told["removed"], told["changed"]) == (0, 0, len(changed)) and changed
    examples = {example["key"]: (example["before"], example["after"]) for example in told["examples"]["changed"]}
    assert examples == {repr(key): (repr(before[key]), repr(after[key])) for key in changed}
    assert penstock_state("diff", stopped.newest, job).exit_code == 0, "the newest is the job's"


@pytest.mark.usefixtures("configured")
def test_commands_name_what_is_damaged_and_missing_in_a_bucket(stopped: Stopped) -> None:
    store = Place(stopped.place.server, "s3://second/damaged").store
    folder = stopped.newest.removeprefix(f"{stopped.place.root}/")
    job, chk = folder.split("/")
    segments = read_checkpoint(stopped.newest).metadata.segments
    for path in [f"{chk}/_metadata", *(segment.path for segment in segments)]:
        store.put(path, [stopped.place.store.get(f"{job}/{path}")])
    copy = f"s3://second/damaged/{chk}"
    assert penstock_state("verify", copy).exit_code == 0
    damaged = bytearray(store.get(segments[0].path))
    damaged[len(damaged) // 2] ^= 1
    store.delete(segments[0].path)  # objects are never overwritten
    store.put(segments[0].path, [bytes(damaged)])
    shown = penstock_state("verify", copy)
    assert shown.exit_code == 1 and "checksum does not match" in shown.stdout
    store.delete(segments[0].path)
    shown = penstock_state("verify", copy)
    assert shown.exit_code == 1 and "the segment is missing" in shown.stdout
    shown = penstock_state("inspect", "s3://second/nothing")
    assert shown.exit_code == 2 and "s3://second/nothing" in shown.stderr


def test_a_program_reads_a_checkpoint_in_a_bucket_as_arrow(stopped: Stopped) -> None:
    checkpoint = read_checkpoint(stopped.newest, stopped.configuration)
    count = checkpoint.keyed_state(UID, "count")
    table = count.table()
    assert table.schema.names == ["key", "key_group", "value"] and table.num_rows == KEYS == count.count()
    found = dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
    assert found == counts_after(stopped.rows)
    shares = [dict(share.entries()) for share in checkpoint.keyed_state(UID, "last").split(3)]
    assert len(shares) > 1 and sum(map(len, shares)) == KEYS
    assert {key: value for share in shares for key, value in share.items()} == last_after(stopped.rows)


class ReadCounted(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def read_key(self, key: Any, ctx: Any) -> Any:
        yield key, (self.count.value(), list(self.last.get()))


@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="PySpark 3.5 has no data sources in Python")
def test_a_checkpoint_in_a_bucket_is_a_data_frame(stopped: Stopped, quick_session: SparkSession) -> None:
    reader = quick_session.read.format("penstock-state").options(**stopped.place.server.options)
    found = reader.options(path=stopped.newest, uid=UID, name="count", num_partitions="3").load()
    assert found.rdd.getNumPartitions() >= 2
    rows = found.collect()
    assert len(rows) == KEYS and {row.key: row.value for row in rows} == counts_after(stopped.rows)


# ---- jobs that start from it ------------------------------------------------------------------------------------


def test_a_job_starts_from_a_savepoint_in_a_bucket_that_was_changed_there(stopped: Stopped, tmp_path: Path) -> None:
    place = Place(stopped.place.server, "s3://second/changed")
    env, before = place.environment(**INCREMENTAL), stopped.listed()
    reader = SavepointReader.read(env, stopped.newest)
    counts, last = counts_after(stopped.rows), last_after(stopped.rows)
    assert dict(reader.read_keyed_state(UID, ReadCounted())) == {key: (counts[key], last[key]) for key in counts}
    table = reader.keyed_state(UID, "count").table()
    raised = pa.array([value + ADDED for value in table.column("value").to_pylist()], pa.int64())
    writer = SavepointWriter.from_existing_savepoint(env, stopped.newest)
    changed = table.set_column(table.schema.get_field_index("value"), "value", raised)
    path = writer.with_keyed_state(CHAINED, "count", changed).write(f"{place.root}/savepoint")
    written = read_checkpoint(path, stopped.configuration)
    assert dict(written.keyed_state(UID, "count").entries()) == {key: count + ADDED for key, count in counts.items()}
    assert dict(written.keyed_state(UID, "last").entries()) == last
    assert stopped.listed() == before

    env = place.environment(path, **INCREMENTAL)
    chained(env, tmp_path / "out", ROWS)
    env.execute_async("chained").wait(WAIT_S * 1000)
    rest = lines_after(ROWS) - lines_after(stopped.rows)
    raised_lines = (line.split(":") for line in rest)
    assert committed(tmp_path / "out") == {f"{key}:{int(n) + ADDED}": 1 for key, n in raised_lines}


def test_a_job_in_another_bucket_starts_from_a_chain_and_leaves_it_alone(stopped: Stopped) -> None:
    """Comes last: it writes the rest of the output."""
    place, before = Place(stopped.place.server, "s3://second/jobs"), stopped.listed()
    env = place.environment(stopped.newest, execution_state__recovery_claim__mode="NO_CLAIM", **OPTIONS)
    chained(env, stopped.out, ROWS, ROWS_PER_SECOND)
    client = env.execute_async("chained")
    wait_until(lambda: client.report().completed >= 3, "checkpoints of its own")
    client.cancel().result(WAIT_S)
    job = f"{place.root}/{client.get_job_id()}"
    unnamed(Place(stopped.place.server, job).store)  # checks that all that its newest checkpoint names is there
    assert stopped.listed() == before

    for path in before:
        stopped.place.store.delete(path)
    env = place.environment(job, **OPTIONS)
    chained(env, stopped.out, ROWS)
    env.execute_async("chained").wait(WAIT_S * 1000)
    assert committed(stopped.out) == lines_after(ROWS)
    assert stopped.listed() == {}
