"""Tests state that cannot be restored: damaged files of RocksDB, formats of a later version. Local copies of two
jobs.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.datastream import EmbeddedRocksDBStateBackend, StreamExecutionEnvironment
from penstock.jobmaster.identity import RestoreSourceError
from penstock.protocol.values.metadata import FORMAT_VERSION
from penstock.storage.metadata_file import KIND, read_metadata
from penstock.storage.opening import open_store
from penstock.storage.sealed import seal, unseal
from tests.spark.small_jobs import (
    KEPT,
    WAIT_S,
    checkpoints,
    committed,
    environment,
    execute,
    failure,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 4000
EXPECTED = {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, ROWS, 7)) + 1)}


def counting(
    root: Path, out: Path, rows_per_second: float, local: Path | None = None, **options: str
) -> StreamExecutionEnvironment:
    """Counts the rows of each key in RocksDB, with checkpoints that name the files of those before them."""
    given = {"execution_checkpointing_incremental": "true", **checkpoints(root), **restarts(1000), **options}
    if local is not None:
        given["execution_checkpointing_local__backup_enabled"] = "true"
        given["execution_checkpointing_local__backup_dirs"] = str(local / "copies")
    env = environment(2, **given)
    backend = EmbeddedRocksDBStateBackend(True)
    if local is not None:
        backend.set_db_storage_paths(str(local / "databases"))
    env.set_state_backend(backend)
    pairs = numbers(env, ROWS, rows_per_second).map(lambda i: (i % 7, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    counted = pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    counted.map(lambda pair: f"{pair[0]}:{pair[1]}", Types.STRING()).sink_to(file_sink(out))
    return env


def test_a_damaged_file_of_rocksdb_is_refused_by_name_with_the_ways_out(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    options = {"execution_checkpointing_num__retained": "2", **KEPT}
    client = counting(root, out, 500.0, None, **options).execute_async("counting")
    wait_until(lambda: client.report().completed >= 4, "checkpoints")
    client.cancel().result(WAIT_S)
    half = committed(out)
    (job,) = root.iterdir()
    older, newest = sorted((path.parent for path in job.glob("chk-*/_metadata")), key=lambda path: int(path.name[4:]))
    metadata = read_metadata(open_store(str(job)), f"{newest.name}/_metadata")
    runs = [run for subtask in metadata.subtasks for run in subtask.keyed]
    run = max(runs, key=lambda run: run.length_bytes)
    path = metadata.segments[run.segment].path
    with (job / path).open("r+b") as file:
        file.seek(run.offset)
        file.write(b"\xa5" * run.length_bytes)
    resumed = counting(root, out, 1e6, None, execution_state__recovery_path="latest")
    message = failure(lambda: execute(resumed, "counting"))
    for text in (f"checkpoint {newest.name[4:]}", path, f"-s {older}"):
        assert text in message, message
    assert "Traceback" not in message
    assert committed(out) == half, "no row was processed"


def test_a_savepoint_of_a_later_version_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    client = counting(root, out, 500.0).execute_async("counting")
    wait_until(lambda: client.report().completed >= 1, "a checkpoint")
    savepoint = client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints")).result(WAIT_S)
    file = Path(savepoint) / "_metadata"
    whole = file.read_bytes()
    body = unseal(KIND, FORMAT_VERSION, whole, "the savepoint")
    file.write_bytes(seal(KIND, FORMAT_VERSION + 1, body))
    says = rf"has format version {FORMAT_VERSION + 1}, this Penstock knows up to {FORMAT_VERSION}: use the version that"
    started = counting(tmp_path / "new", out, 1e6, None, execution_state__recovery_path=savepoint)
    with pytest.raises(RestoreSourceError, match=rf"execution\.state-recovery\.path.*{re.escape(savepoint)}.*{says}"):
        execute(started)
    file.write_bytes(whole)
    execute(counting(tmp_path / "new", out, 1e6, None, execution_state__recovery_path=savepoint))
    assert committed(out) == EXPECTED


def test_two_jobs_share_local_directories_while_their_slots_are_killed(tmp_path: Path) -> None:
    local = tmp_path / "local"
    outs = [tmp_path / f"out-{n}" for n in range(2)]
    clients = [
        counting(tmp_path / f"checkpoints-{n}", out, 400.0, local).execute_async(f"counting-{n}")
        for n, out in enumerate(outs)
    ]
    for victim in clients:
        wait_until(lambda: all(client.report().completed >= 3 for client in clients), "checkpoints")
        before = victim.report().restarts
        os.kill(next(pid for pid in victim.report().slot_pids if pid is not None), signal.SIGKILL)
        wait_until(lambda: victim.report().restarts > before, "a restart")
    for client, out in zip(clients, outs, strict=True):
        client.wait(timeout_ms=WAIT_S * 1000)
        assert committed(out) == EXPECTED
    for folder in local.iterdir():
        wait_until(lambda: not [p for p in folder.rglob("*") if p.is_file()], f"an empty {folder}")
