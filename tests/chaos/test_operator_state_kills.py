"""Operator state of a function, of a source reader and of a sink writer on a real Spark, while slots are killed and the
parallelism changes: lists are dealt out, union lists and maps are told to all, and nothing counts twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import CheckpointedFunction, FlatMapFunction, MapStateDescriptor, StreamExecutionEnvironment
from penstock.datastream.connectors.base import Committer, ReaderContext, Sink, SinkWriter, SourceReader, WriterContext
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor
from penstock.state import read_checkpoint
from tests.chaos.test_kills import kill_slots
from tests.chaos.test_upgrade_kills import SMALL, go_on, kill_one, stop_aligned
from tests.spark.small_jobs import checkpoints, committed, environment, file_sink, restarts
from tests.spark.test_savepoints import UNALIGNED, WAIT_S, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

AT_ONCE = 3
ROWS = AT_ONCE * 7_000
START = 42
HELD, READ, TOTALS, WRITTEN = (ListStateDescriptor(n, Types.LONG()) for n in ("held", "read", "totals", "written"))
SHARED = MapStateDescriptor("shared", Types.STRING(), Types.LONG())


class InThrees(FlatMapFunction, CheckpointedFunction):
    """Holds rows until there are three. Every line says what the map shared by all subtasks has. The union list counts
    the rows of all: each subtask its own, and the first also those from before the restore, which all are told."""

    def __init__(self, hurries: Path) -> None:
        self.hurries = hurries

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.held_state, self.totals = store.get_list_state(HELD), store.get_union_list_state(TOTALS)
        self.shared = store.get_broadcast_state(SHARED)
        self.held, self.before, self.rows = list(self.held_state.get()), sum(self.totals.get()), 0
        if not context.is_restored():
            self.shared.put("start", START)

    def open(self, runtime_context: Any) -> None:
        self.is_first = runtime_context.get_index_of_this_subtask() == 0

    def snapshot_state(self, context: Any) -> None:
        self.held_state.update(self.held)
        self.totals.update([self.rows + (self.before if self.is_first else 0)])

    def flat_map(self, value: int) -> Iterator[str]:
        if not self.hurries.exists():
            time.sleep(0.003)
        self.rows += 1
        self.held.append(value)
        while len(self.held) >= AT_ONCE:
            yield from (f"{row}:{self.shared.get('start')}" for row in self.held[:AT_ONCE])
            del self.held[:AT_ONCE]


class Counting(CheckpointedFunction):
    """Counts rows in a list of the operator's, of which another subtask may get some elements."""

    def __init__(self, descriptor: ListStateDescriptor) -> None:
        self.descriptor = descriptor

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(self.descriptor)
        self.rows = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.rows])


class CountingReader(Counting, SourceReader):
    def __init__(self, reader: SourceReader) -> None:
        super().__init__(READ)
        self.reader = reader

    def read(self, rows_max: int) -> Any:
        got = self.reader.read(rows_max)
        self.rows += got.num_rows if isinstance(got, pa.RecordBatch) else 0
        return got

    def add_splits(self, splits: list[bytes]) -> None:
        self.reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self.reader.no_more_splits()

    def splits_in_hand(self) -> list[str]:
        return self.reader.splits_in_hand()

    @property
    def current_split(self) -> str:
        return self.reader.current_split

    def snapshot(self) -> list[bytes]:
        return self.reader.snapshot()


class CountedNumbers(DataGeneratorSource):
    def create_reader(self, context: ReaderContext) -> SourceReader:
        return CountingReader(super().create_reader(context))


class CountingWriter(Counting, SinkWriter):
    def __init__(self, writer: SinkWriter) -> None:
        super().__init__(WRITTEN)
        self.writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.writer.write(batch)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        return self.writer.prepare_commit(checkpoint_id)

    def snapshot(self) -> list[bytes]:
        return self.writer.snapshot()

    def commits_confirmed(self, checkpoint_id: int) -> None:
        self.writer.commits_confirmed(checkpoint_id)

    def finish(self) -> None:
        self.writer.finish()

    def close(self) -> None:
        self.writer.close()


class CountedFiles(Sink):
    def __init__(self, out: Path) -> None:
        self.files = file_sink(out)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return CountingWriter(self.files.create_writer(context, restored))

    def create_committer(self) -> Committer | None:
        return self.files.create_committer()


def build(env: StreamExecutionEnvironment, out: Path) -> StreamExecutionEnvironment:
    source = CountedNumbers(lambda i: i, ROWS, type_info=Types.LONG())
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).uid("numbers")
    threes = rows.rebalance().flat_map(InThrees(out.with_name("hurries")), Types.STRING()).uid("threes")
    threes.rebalance().sink_to(CountedFiles(out)).uid("files")
    return env


def check(savepoint: str) -> tuple[list[int], int]:
    """Check that the counts of an aligned savepoint agree. Return the rows that are held, and how many are written."""
    state = read_checkpoint(savepoint)
    values = {
        name: state.operator_state(uid, name)["value"].to_pylist()
        for uid, name in (("numbers", "read"), ("threes", "held"), ("threes", "totals"), ("files", "written"))
    }
    assert sum(values["read"]) == sum(values["totals"]) == sum(values["written"]) + len(values["held"])
    assert state.broadcast_state("threes", "shared").to_pylist() == [{"key": "start", "value": START}]
    return values["held"], sum(values["written"])


def test_operator_state_counts_every_row_once_while_slots_are_killed_and_the_job_is_rescaled(
    tmp_path: Path, spark_session: object
) -> None:
    out, savepoints, chance = tmp_path / "out", tmp_path / "savepoints", random.Random(3)
    options = {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED, **SMALL, **restarts(1000)}
    client = build(environment(2, **options), out).execute_async("before")
    assert len(kill_slots(client, chance, 2)) == 2
    go_on(client, drained=False)
    client.rescale(3).result(WAIT_S)
    kill_one(client, "behind the rescale")
    assert {v.parallelism for v in client.report().vertices} == {3}
    stopped = stop_aligned(client, savepoints)
    held, written = check(stopped)
    lines = committed(out)
    assert written == lines.total() > 0 and set(lines.values()) == {1} and len(set(held)) == len(held)
    assert not {f"{value}:{START}" for value in held} & lines.keys(), "what is held is not written"

    options |= {**checkpoints(tmp_path / "new"), "execution_state__recovery_path": stopped}
    client = build(environment(1, **options), out).execute_async("after")
    kill_one(client, "of one slot")
    go_on(client)
    saved = client.trigger_savepoint(str(savepoints), aligned=True).result(WAIT_S)
    assert check(saved)[1] > written, "the counts go on from the savepoint before"
    finish(client, out)
    assert committed(out) == {f"{value}:{START}": 1 for value in range(ROWS)}
