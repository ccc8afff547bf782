"""Tests `penstock state inspect`, `diff` and `verify`, on checkpoints of real jobs."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import FORMAT_VERSION, InflightRange, Metadata
from penstock.savepoints import SavepointWriter
from penstock.state import read_checkpoint
from penstock.storage.local import LocalStore
from penstock.storage.log import append
from penstock.storage.metadata_file import encode_metadata, metadata_crc
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.savepoints.jobs import environment
from tests.unit.state.reading.jobs import BACKENDS, KEYS, StoredJob, aggregates, keyed, stored


def captured(metadata: Metadata) -> list[InflightRange]:
    captures = [c for s in metadata.subtasks for cut in s.inputs for c in cut.captures]
    captures += [c for s in metadata.subtasks for cut in s.outputs for c in cut.captures]
    return [piece for capture in captures for piece in capture.pieces]


def penstock(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["state", *arguments])


def test_inspect_shows_operators_states_and_rows_in_flight(tmp_path: Path) -> None:
    job = StoredJob(tmp_path / "job", keyed)
    job.run(40)
    path = job.checkpoint(1, 0)  # unaligned
    job.close()
    shown = penstock("inspect", path, "--key-groups")
    assert shown.exit_code == 0, shown.stderr
    for text in ("checkpoint 1 of job job", "everything", "remembering", "PICKLED", "of dict", "in flight: "):
        assert text in shown.stdout
    assert "largest keys of 'list' of 'everything': " in shown.stdout and "key groups of 'sum'" in shown.stdout
    told = json.loads(penstock("inspect", path, "--json").stdout)
    states = {state["name"]: state for state in told["states"]}
    assert (
        states["sum"]["keys"] == sum(states["sum"]["keys_of_group"]) == KEYS
        and states["sum"]["operator"] == "everything"
    )
    assert states["sum"]["bytes"] == sum(states["sum"]["bytes_of_group"]) and states["sum"]["skew"] > 1
    metadata = read_checkpoint(path).metadata
    assert sum(c["rows"] for c in told["in_flight"]) == sum(p.rows for p in captured(metadata)) > 0
    assert {c["source"] for c in told["in_flight"]} == {"Map"}


def test_inspect_finds_the_largest_keys(tmp_path: Path) -> None:
    told = json.loads(penstock("inspect", stored(tmp_path / "job", keyed, turns=60), "--json", "--largest", "2").stdout)
    largest = next(s for s in told["states"] if s["name"] == "list")["largest"]
    lists = dict(read_checkpoint(str(tmp_path / "job" / "chk-1")).keyed_state("everything", "list").entries())
    sizes = sorted((sum(4 + len(text) for text in value) for value in lists.values()), reverse=True)
    assert [sum(4 + len(text) for text in lists[int(each["key"])]) for each in largest] == sizes[:2]


class Customer:
    def __init__(self, name: str) -> None:
        self.name = name


class Remember(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.customer = runtime_context.get_state(ValueStateDescriptor("customer"))

    def process_element(self, number: int, ctx: Any) -> Any:
        self.customer.update(sys.modules["gone_module"].Customer(f"c{number}") if number % 2 else number)
        return []


def objects(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(lambda i: i, 10, type_info=Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    numbers.key_by(lambda i: i, Types.LONG()).process(Remember(), Types.LONG()).uid("customers").sink_to(
        CommittedRows()
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_objects_of_classes_that_are_gone_are_named_and_stop_nothing(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("gone_module")
    of_module = type("Customer", (Customer,), {"__module__": "gone_module"})
    module.Customer = of_module  # type: ignore[attr-defined]
    with monkeypatch.context() as there:
        there.setitem(sys.modules, "gone_module", module)
        path = stored(tmp_path / "job", objects, backend=backend, turns=60)
    shown = penstock("inspect", path, "--json")
    state = next(s for s in json.loads(shown.stdout)["states"] if s["name"] == "customer")
    assert state["classes"] == ["gone_module.Customer (cannot be imported)", "int"] and state["keys"] == 10
    rows = read_checkpoint(path).keyed_state("customers", "customer")
    table = rows.table().sort_by("key")
    assert table.column("value").to_pylist()[:2] == ["0", "<gone_module.Customer: the class cannot be imported>"]
    found = dict(rows.entries())
    assert found[1].class_name == "gone_module.Customer" and found[1].state == {"name": "c1"} and found[2] == 2
    raw = read_checkpoint(path).keyed_state("customers", "customer", pickles="bytes").table()
    assert all(isinstance(value, bytes) for value in raw.column("value").to_pylist())


def stopped_job(directory: Path, savepoint: str) -> str:
    """The directory of a job that was stopped with a savepoint: its end has deleted all metadata."""
    directory.mkdir()
    store = LocalStore(str(directory))
    append(store, Fence(0, "inc", 0, "host", 4711))
    entry = CheckpointEntry(1, "inc", 0, 0, 4, "chk-4/_metadata", 0, ["chk-4/_metadata"], True, savepoint=savepoint)
    append(store, entry)
    append(store, Ended(2, "inc", "FINISHED", []))
    return str(directory)


def test_the_directory_of_a_stopped_job_means_its_savepoint(tmp_path: Path) -> None:
    saved = str(tmp_path / "saved")
    SavepointWriter.from_existing_savepoint(environment(), stored(tmp_path / "job", keyed)).write(saved)
    job = stopped_job(tmp_path / "stopped", saved)
    shown = penstock("inspect", job)
    assert shown.exit_code == 0 and f" in {saved}\n" in shown.stdout and "everything" in shown.stdout
    assert json.loads(penstock("inspect", job, "--json").stdout)["path"] == saved
    assert f"{saved} is whole" in penstock("verify", job).stdout
    assert penstock("diff", job, saved).exit_code == 0
    gone = stopped_job(tmp_path / "other", str(tmp_path / "gone"))
    for command in ("inspect", "verify"):
        refused = penstock(command, gone)
        assert refused.exit_code != 0 and str(tmp_path / "gone") in refused.stdout + refused.stderr


def test_the_directory_of_a_job_that_has_kept_nothing_is_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    append(store, Fence(0, "inc", 0, "host", 4711))
    append(store, CheckpointEntry(1, "inc", 0, 0, 4, "chk-4/_metadata", 0, ["chk-4/_metadata"], True))
    append(store, Ended(2, "inc", "FINISHED", []))
    shown = penstock("inspect", str(tmp_path))
    assert shown.exit_code == 2 and "has ended (FINISHED) and kept no checkpoint" in shown.stderr


# ---- diff -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_diff_counts_keys_that_came_went_and_changed(tmp_path: Path, backend: str) -> None:
    job = StoredJob(tmp_path / "job", keyed, options=BACKENDS[backend])
    job.run(20)
    first = job.checkpoint(1)
    job.run(2)
    second = job.checkpoint(2)
    job.close()
    shown = penstock("diff", first, second, "--json", "--examples", "100")
    assert shown.exit_code == 1, shown.stderr
    told = {state["name"]: state for state in json.loads(shown.stdout)["states"]}
    for name in ("sum", "list", "map", "object", "mean", "_event_time_timers"):
        old, new = (dict(read_checkpoint(p).keyed_state("everything", name).entries()) for p in (first, second))
        assert (told[name]["added"], told[name]["removed"]) == (
            len(new.keys() - old.keys()),
            len(old.keys() - new.keys()),
        )
        changed = {key for key in old.keys() & new.keys() if old[key] != new[key]}
        assert told[name]["changed"] == len(changed) and told[name]["same"] == len(old.keys() & new.keys()) - len(
            changed
        )
        examples = {e["key"]: (e["before"], e["after"]) for e in told[name]["examples"].get("changed", [])}
        assert examples == {repr(key): (repr(old[key]), repr(new[key])) for key in changed}
        assert [e["before"] for e in told[name]["examples"]["added"]] == [None] * told[name]["added"]
    assert sum(told["sum"][count] for count in ("changed", "added")) > 0
    same = penstock("diff", second, second)
    assert (same.exit_code, same.stdout) == (0, "the state is the same\n")
    key, before, after = next((k, *v) for k, v in _changed(told["sum"]).items())
    printed = penstock("diff", first, second, "--examples", "100").stdout
    assert f"{key}: {before} -> {after}" in printed


def _changed(told: Any) -> dict[str, tuple[str, str]]:
    return {e["key"]: (e["before"], e["after"]) for e in told["examples"]["changed"]}


def test_diff_of_other_operators_and_aggregates(tmp_path: Path) -> None:
    first, second = stored(tmp_path / "a", aggregates, turns=8), stored(tmp_path / "b", aggregates, turns=20)
    shown = penstock("diff", first, second)
    assert (
        shown.exit_code == 1
        and "_aggregates" in shown.stdout
        and "added in '_aggregates' of 'totals': 'user" in shown.stdout
    )
    shown = penstock("diff", first, stored(tmp_path / "c", keyed))
    assert "operators only in the first: " in shown.stdout and "everything" in shown.stdout


# ---- verify -----------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_verify_names_every_damaged_range(tmp_path: Path) -> None:
    job = StoredJob(tmp_path / "job", keyed)
    job.run(40)
    path = job.checkpoint(1, 0)
    job.close()
    whole = penstock("verify", path)
    assert whole.exit_code == 0 and "is whole: " in whole.stdout
    metadata = read_checkpoint(path).metadata
    segments = [tmp_path / "job" / segment.path for segment in metadata.segments]
    state = next(run for s in metadata.subtasks for run in s.keyed if run.name == "sum" and s.subtask == 1)
    piece = captured(metadata)[0]
    for range_ in (state, piece):
        flip(segments[range_.segment], range_.offset + range_.length_bytes // 2)
    shown = penstock("verify", path)
    assert shown.exit_code == 1
    damaged = [line for line in shown.stdout.splitlines() if "checksum does not match" in line]
    assert len(damaged) == 2
    assert "state 'sum' of operator 'Keyed Process', subtask 1 (key groups 64 to 127) is damaged" in shown.stdout
    assert "in-flight data of the channel from 'Map' (0) to 'Keyed Process' (" in shown.stdout
    told = json.loads(penstock("verify", path, "--json").stdout)[0]
    assert [d["belongs_to"][:11] for d in told["damaged"]].count("state 'sum'") == 1 and len(told["damaged"]) == 2
    segments[0].unlink()
    shown = penstock("verify", path)
    named = [r for s in metadata.subtasks for r in s.keyed if r.segment == 0]
    assert shown.stdout.count("the segment is missing") >= len(named) > 3


def job_directory(tmp_path: Path) -> Path:
    """A job's directory with a log, and two retained checkpoints."""
    directory = tmp_path / "job"
    job = StoredJob(directory, keyed)
    job.run(20)
    for checkpoint_id in (1, 2):
        job.checkpoint(checkpoint_id)
    job.close()
    store = LocalStore(str(directory))
    append(store, Fence(0, "i", 0, "host", 1))
    names = ["chk-1/_metadata", "chk-2/_metadata"]
    crc = metadata_crc(store.get(names[1]))
    append(store, CheckpointEntry(1, "i", 0, 0, 2, names[1], crc, names))
    return directory


def test_a_jobs_directory_is_its_newest_checkpoint_or_all_that_it_retains(tmp_path: Path) -> None:
    directory = job_directory(tmp_path)
    assert read_checkpoint(str(directory)).path == str(directory / "chk-2")
    assert penstock("verify", f"file://{directory}").stdout.count("is whole") == 2
    flip(directory / "chk-1" / "_metadata", 100)
    shown = penstock("verify", str(directory))
    assert shown.exit_code == 1 and "chk-1 is damaged: its metadata cannot be read" in shown.stdout
    assert "chk-2 is whole" in shown.stdout


def test_paths_that_name_no_checkpoint_and_newer_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    refused = penstock("inspect", str(tmp_path / "nothing"))
    assert refused.exit_code == 2 and "neither a checkpoint, a savepoint nor a job's directory" in refused.stderr
    path = stored(tmp_path / "job", keyed)
    metadata = msgspec.structs.replace(read_checkpoint(path).metadata, format_version=FORMAT_VERSION + 1)
    (tmp_path / "job" / "chk-1" / "_metadata").write_bytes(encode_metadata(metadata))
    for command in (["inspect", path], ["diff", path, path], ["verify", path]):
        refused = penstock(*command)
        assert refused.exit_code == 2, command
        assert f"has format version {FORMAT_VERSION + 1}, this Penstock knows up to {FORMAT_VERSION}" in refused.stderr
