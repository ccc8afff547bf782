"""Tests state with a time to live in savepoints: made of rows, read with its times, and replaced by tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.savepoints import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
)
from penstock.state import read_checkpoint
from penstock.state.backend import StateError
from tests.unit.savepoints.jobs import environment
from tests.unit.state.reading.jobs import BACKENDS

USERS = OperatorIdentifier.for_uid("users")
LAST = ValueStateDescriptor("last", Types.STRING())
SEEN = ListStateDescriptor("seen", Types.LONG())
for descriptor in (LAST, SEEN):
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())


class Remember(KeyedStateBootstrapFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(LAST)
        self.seen = runtime_context.get_list_state(SEEN)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.last.update(row[1])
        self.seen.add_all([1] * row[0])


class ReadLast(KeyedStateReaderFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(LAST)

    def read_key(self, key: Any, ctx: Any) -> Any:
        yield key, self.last.value()


def made(directory: Path, backend: str = "hashmap") -> str:
    env = environment(2, **BACKENDS[backend])
    rows = [(1, "a"), (2, "b"), (3, "c")]
    transformation = OperatorTransformation.bootstrap_with(rows).key_by(lambda row: row[0]).transform(Remember())
    return str(SavepointWriter.new_savepoint(env, 8).with_operator(USERS, transformation).write(str(directory)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_times_are_a_column_next_to_the_values(tmp_path: Path, backend: str) -> None:
    began_ms = int(time.time() * 1000)
    checkpoint = read_checkpoint(made(tmp_path / "made", backend))
    table = checkpoint.keyed_state("users", "last").table().sort_by("key")
    assert table.column_names == ["key", "key_group", "value", "last_access_ms"]
    assert table.column("value").to_pylist() == ["a", "b", "c"]
    assert all(began_ms <= at <= time.time() * 1000 for at in table.column("last_access_ms").to_pylist())
    seen = checkpoint.keyed_state("users", "seen").table().sort_by("key")
    assert [len(times) for times in seen.column("last_access_ms").to_pylist()] == [1, 2, 3]
    assert dict(checkpoint.keyed_state("users", "last").entries()) == {1: "a", 2: "b", 3: "c"}


def test_a_table_with_times_replaces_them_and_one_without_begins_them_again(tmp_path: Path) -> None:
    path = made(tmp_path / "made")
    table = read_checkpoint(path).keyed_state("users", "last").table().sort_by("key")
    hours = pa.array([2 * 3_600_000, 0, 0])
    older = table.set_column(3, "last_access_ms", pc.subtract(table.column("last_access_ms"), hours))
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(USERS, "last", older).write(str(tmp_path / "older"))
    assert read_checkpoint(written).keyed_state("users", "last").table().sort_by("key").equals(older)
    env = environment()
    assert sorted(SavepointReader.read(env, written).read_keyed_state("users", ReadLast())) == [
        (1, None), (2, "b"), (3, "c")
    ]  # fmt: skip
    writer = SavepointWriter.from_existing_savepoint(environment(), written)
    again = writer.with_keyed_state(USERS, "last", older.drop_columns(["last_access_ms"])).write(str(tmp_path / "new"))
    assert read_checkpoint(again).keyed_state("users", "last").table().column("last_access_ms").null_count == 3
    assert sorted(SavepointReader.read(env, again).read_keyed_state("users", ReadLast())) == [
        (1, "a"), (2, "b"), (3, "c")
    ]  # fmt: skip


@pytest.mark.parametrize("times", [["x", "y", "z"], [[1], [2], [3]], [[1], None, [2, None, 3]]])
def test_times_that_do_not_fit_are_refused(tmp_path: Path, times: list[Any]) -> None:
    path = made(tmp_path / "made")
    for name, each in (("last", "a time"), ("seen", "a list of times")):
        table = read_checkpoint(path).keyed_state("users", name).table().sort_by("key")
        wrong = table.set_column(3, "last_access_ms", pa.array(times))
        writer = SavepointWriter.from_existing_savepoint(environment(), path)
        with pytest.raises(StateError, match=rf"'{name}'.*'last_access_ms' is .* each row needs {each}"):
            writer.with_keyed_state(USERS, name, wrong).write(str(tmp_path / "wrong"))


def test_the_command_line_says_which_states_expire_and_compares_them(tmp_path: Path) -> None:
    path = made(tmp_path / "made")
    shown = CliRunner().invoke(app, ["state", "inspect", path], env={"COLUMNS": "160"})
    assert shown.exit_code == 0 and "value, TTL" in shown.output and "list, TTL" in shown.output
    table = read_checkpoint(path).keyed_state("users", "last").table().drop_columns(["last_access_ms"])
    writer = SavepointWriter.from_existing_savepoint(environment(), path)
    written = writer.with_keyed_state(USERS, "last", table).write(str(tmp_path / "without"))
    for pair in ((path, written), (written, path)):
        assert CliRunner().invoke(app, ["state", "diff", *pair]).exit_code == 0
