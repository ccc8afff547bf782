"""Runs the command `penstock` as a user does: what it prints, what it refuses, and its exit codes for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock import __version__ as penstock_version
from penstock.cli.checkpoint_tables import size_of
from penstock.cli.main import app
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import (
    FORMAT_VERSION,
    Metadata,
    Segment,
    StateRange,
    SubtaskSnapshot,
    VertexShape,
)
from penstock.storage.layout import metadata_path
from penstock.storage.log import append
from penstock.storage.metadata_file import encode_metadata, metadata_crc, read_metadata
from penstock.storage.opening import open_store

ROOT = Path(__file__).parents[3]


def penstock(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60, check=False)


Program = Callable[[str], str]
"""Writes a program; returns its path."""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    def write(text: str) -> str:
        file = tmp_path / "job.py"
        file.write_text(text)
        return str(file)

    return write


def test_the_program_is_main_and_sees_its_folder_its_arguments_and_the_options(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    file = program(
        "import json, os, sys, beside\n"
        "assert __name__ == '__main__'\n"
        "options = json.loads(os.environ['PENSTOCK_DYNAMIC_OPTIONS'])\n"
        "print(json.dumps([beside.WORD, sys.argv[1:], options]))\n"
    )
    done = penstock(
        "run", "-p", "3", "-D", "execution.checkpointing.interval=1 s", "-s", "jobs/x", "-c", "claim", file, "-p", "a b"
    )
    assert done.stderr == ""
    word, arguments, options = json.loads(done.stdout)
    assert (word, arguments) == ("beside", ["-p", "a b"])
    assert options == {
        "parallelism.default": "3",
        "execution.checkpointing.interval": "1 s",
        "execution.state-recovery.path": str(ROOT / "jobs/x"),
        "execution.state-recovery.claim-mode": "claim",
    }
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-D", "execution.checkpointing.intervall=1s"], "did you mean execution.checkpointing.interval"),
        (["-D", "execution.checkpointing.interval"], "key=value"),
        (["-D", "execution.checkpointing.interval=fast"], "execution.checkpointing.interval"),
        (["-c", "maybe"], "claim-mode"),
    ],
)
def test_wrong_options_are_usage_errors(program: Program, arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["run", *arguments, program("print('never')")])
    assert done.exit_code == 2
    assert says in done.output
    assert "Traceback" not in done.output
    assert "never" not in done.output


def test_a_program_that_is_not_there_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["run", "no/such/job.py"])
    assert (done.exit_code, done.output) == (
        2,
        "penstock: there is no program no/such/job.py; give the path of a Python file\n",
    )


@pytest.mark.parametrize("option", ["-z", "--jobmanager"])
def test_an_option_that_run_does_not_have(program: Program, option: str) -> None:
    done = CliRunner().invoke(app, ["run", option, program("print('never')")])
    assert done.exit_code == 2
    assert done.output.startswith(f"penstock: run has no option {option}; see penstock run --help.")


def test_a_path_that_cannot_be_resumed_is_a_usage_error(program: Program) -> None:
    done = penstock(
        "run",
        program(
            "from penstock.jobmaster.identity import RestoreSourceError\n"
            "raise RestoreSourceError('execution.state-recovery.path: checkpoint 3: it does not fit')\n"
        ),
    )
    said = "penstock: execution.state-recovery.path: checkpoint 3: it does not fit\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_an_error_of_the_program_is_shown_from_its_own_first_line(program: Program) -> None:
    done = penstock("run", program("def f():\n    raise ValueError('mine')\nf()\n"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: mine"
    assert "runpy" not in done.stderr
    assert "penstock" not in done.stderr


def test_a_failed_job_shows_the_users_traceback_first_and_then_one_line(program: Program) -> None:
    done = penstock(
        "run",
        program(
            "from penstock.common.job_execution import JobExecutionError\n"
            "raise JobExecutionError('job x failed', traceback='Traceback: theirs', checkpoint_path='/c/chk-3')\n"
        ),
    )
    assert done.returncode == 1
    assert done.stderr.split("\n") == ["Traceback: theirs", "", "job x failed", "Resume from: /c/chk-3", ""]


@pytest.mark.parametrize(
    ("text", "code"), [("import sys; sys.exit(7)", 7), ("raise SystemExit", 0), ("raise KeyboardInterrupt", 130)]
)
def test_exit_codes(program: Program, text: str, code: int) -> None:
    assert penstock("run", program(text)).returncode == code


def test_help_imports_nothing_heavy() -> None:
    check = (
        "import sys; from penstock.cli.main import app; "
        "sys.exit(bool({'pyspark', 'pyarrow', 'numpy'} & {m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", check], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0


def test_options_are_listed() -> None:
    listed = CliRunner().invoke(app, ["options"]).output
    assert "execution.checkpointing.interval" in listed
    some = CliRunner().invoke(app, ["options", "UNALIGNED"]).output
    assert "execution.checkpointing.unaligned.enabled" in some and "s3.access-key" not in some
    none = CliRunner().invoke(app, ["options", "nothing-like-this"])
    assert none.exit_code == 2 and "no option has 'nothing-like-this'" in none.stderr


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: penstock" in done.stdout and "savepoint" in done.stdout


FORGETS = """
from penstock.datastream import StreamExecutionEnvironment
def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
    {last}
main()
"""


@pytest.mark.parametrize("command", [[], ["-m", "penstock", "run"]], ids=["python", "penstock run"])
@pytest.mark.parametrize(
    ("last", "warns"),
    [("pass", True), ("print(env.get_execution_plan())", False), ("raise SystemExit(3)", True), ("1 / 0", False)],
)
def test_a_program_that_executes_nothing_is_told_so(tmp_path: Path, command: list[str], last: str, warns: bool) -> None:
    program = tmp_path / "forgets.py"
    program.write_text(FORGETS.format(last=last))
    done = subprocess.run([sys.executable, *command, str(program)], capture_output=True, text=True, check=False)
    said = "has declared 3 operators and ended without executing them"
    assert (said in done.stderr) == warns, done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's directory with a log of one checkpoint that was kept when the job was cancelled."""
    folder = tmp_path / "checkpoints" / ("ab" * 16)
    store = open_store(str(folder), create_root=True)
    state = StateRange("0" * 32, "counts", 0, 0, 10, 0, 1)
    told: dict[str, Any] = {"unaligned": True, "persisted_bytes": 2048, "state_bytes": 10}
    snapshot = SubtaskSnapshot(0, 0, [], [], [], [state], [], [], [], **told)
    segment = Segment("shared/g0-0_inc_s0_c4_rnd", 3000)
    shape = VertexShape(0, "source -> map", ["0" * 32], ["source"], 1, 128)
    metadata = Metadata(
        FORMAT_VERSION, "ab" * 16, "my job", 4, 0, 0, "inc", 0, False, [shape], [], [segment], [snapshot], [], []
    )
    data = encode_metadata(metadata)
    store.create(metadata_path(4), data)
    append(store, Fence(0, "inc", 0, "host", 4711))
    append(store, CheckpointEntry(1, "inc", 0, 0, 4, metadata_path(4), metadata_crc(data), [metadata_path(4)]))
    append(store, Ended(2, "inc", "CANCELED", [metadata_path(4)]))
    return folder


def test_list_shows_jobs_with_their_newest_checkpoint(job: Path) -> None:
    open_store(str(job)).put("shared/g0-0_inc_s0_c4_rnd", [bytes(3000)])
    result = CliRunner().invoke(app, ["list", str(job.parent)])
    assert result.exit_code == 0, result.output
    assert job.name in result.output
    for word in ("my job", "CANCELED", "chk-4"):
        assert word in result.output


def test_list_names_ended_jobs_that_have_kept_no_checkpoint(tmp_path: Path) -> None:
    for number, (name, savepoint) in enumerate([("finished job", None), ("stopped job", str(tmp_path / "saved"))]):
        store = open_store(str(tmp_path / "jobs" / (f"{number}" * 32)), create_root=True)
        append(store, Fence(0, "inc", 0, "host", 4711, job_name=name))
        taken = [metadata_path(4)]
        append(store, CheckpointEntry(1, "inc", 0, 0, 4, taken[0], 0, taken, is_final=True, savepoint=savepoint))
        append(store, Ended(2, "inc", "FINISHED", [], job_name=name))
    listed = CliRunner().invoke(app, ["list", str(tmp_path / "jobs")], env={"COLUMNS": "200"}).output
    for text in ("finished", "stopped", f"{'1' * 32} was stopped with the savepoint {tmp_path / 'saved'}"):
        assert text in listed
    assert "missing" not in listed and "none" in listed


def test_list_misses_a_segment_of_the_newest_checkpoint(job: Path) -> None:
    listed = CliRunner().invoke(app, ["list", str(job.parent)]).output
    assert "my job" in listed and f"{job.name} is damaged: " in listed and "shared/g0-0_inc_s0_c4_rnd" in listed


def test_a_job_that_goes_on_while_it_is_listed_is_not_damaged(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes its newest checkpoint between the look at the log and the look at the checkpoint."""
    store = open_store(str(job))
    metadata = msgspec.structs.replace(read_metadata(store, metadata_path(4)), checkpoint_id=5, segments=[])

    class Overtaken:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def get(self, path: str, *range_: int) -> bytes:
            if path == metadata_path(4):
                data = encode_metadata(metadata)
                store.create(metadata_path(5), data)
                newest = metadata_path(5)
                append(store, CheckpointEntry(3, "inc", 0, 0, 5, newest, metadata_crc(data), [newest]))
                store.delete(metadata_path(4))
            return store.get(path, *range_)

    def opened(path: str) -> Any:
        return Overtaken() if path == str(job) else open_store(path)

    monkeypatch.setattr("penstock.cli.checkpoint_tables.open_store", opened)
    listed = CliRunner().invoke(app, ["list", str(job.parent)]).output
    assert "damaged" not in listed and "chk-5" in listed and "my job" in listed


def test_files_that_go_while_they_are_counted_have_no_size(tmp_path: Path) -> None:
    def come_and_go() -> None:
        for number in range(2_000):
            folder = tmp_path / f"chk-{number}"
            folder.mkdir()
            (folder / "_metadata").write_bytes(b"1")
            (folder / "_metadata").unlink()
            folder.rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    store = open_store(str(tmp_path))
    while thread.is_alive():
        assert size_of(store.objects("")) <= 2
    thread.join()


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"penstock {penstock_version}\n"


def test_info_of_a_job_shows_its_log_and_what_is_retained(job: Path) -> None:
    output = CliRunner().invoke(app, ["info", str(job)]).output
    for text in ("process 4711 on host", "checkpoint 4 of generation 0.0", "ended: CANCELED", "unaligned", "2.0 KiB"):
        assert text in output


def test_info_of_a_checkpoint_shows_vertices_and_misses_a_segment(job: Path) -> None:
    output = CliRunner().invoke(app, ["info", str(job / "chk-4")]).output
    for text in ("checkpoint 4 of job " + "ab" * 16, "source -> map", "shared/g0-0_inc_s0_c4_rnd", "MISSING"):
        assert text in output


def test_a_damaged_job_is_listed_as_such_and_a_folder_that_is_none_is_refused(job: Path, tmp_path: Path) -> None:
    (job / "chk-4" / "_metadata").write_bytes(b"penstock?")
    runner = CliRunner()
    listed = runner.invoke(app, ["list", str(job.parent)]).output
    assert "damaged" in listed and f"{job.name} is damaged: chk-4/_metadata" in listed
    assert "damaged: " in runner.invoke(app, ["info", str(job)]).output
    refused = runner.invoke(app, ["info", str(tmp_path)])
    assert refused.exit_code == 2
    assert "is no job's directory" in refused.output
