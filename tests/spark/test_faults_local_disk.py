"""The disk of RocksDB is full while a job runs, and too small for what a job is to restore; it damages a file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.datastream import EmbeddedRocksDBStateBackend, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from tests.spark.small_jobs import (
    KEPT,
    checkpoints,
    committed,
    environment,
    failure,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 12_000
KEYS = 6_000
LINES = {f"{key}:{n}": 1 for key in range(KEYS) for n in range(1, ROWS // KEYS + 1)}
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
SMALL = {
    "state_backend_rocksdb_writebuffer_size": "128 kb",
    "state_backend_rocksdb_memory_fixed__per__slot": "8 mb",
    "state_backend_rocksdb_compression_per_level": "NO_COMPRESSION",
    "penstock_state_rocksdb_object__cache__size": "20 kb",
}


class Fat(KeyedProcessFunction):
    """Counts the rows of each key, and keeps a kilobyte with each count."""

    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
        n = int(self.kept.value() or 0) + 1
        self.kept.update(f"{n:>1000}")
        yield f"{row[0]}:{n}"


def counting(
    local: Path, out: Path, rows_per_second: float | None, options: dict[str, str]
) -> StreamExecutionEnvironment:
    env = environment(2, **SMALL, **options)
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths(str(local))
    env.set_state_backend(backend)
    rows = numbers(env, ROWS, rows_per_second).rebalance().map(lambda i: (i % KEYS, i), PAIR)
    counted = rows.key_by(lambda p: p[0], Types.LONG()).process(Fat(), Types.STRING()).uid("fat")
    counted.sink_to(file_sink(out))
    return env


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(
            "cannot mount a small disk here; tests/unit/state/test_rocksdb_faults.py has the same for a backend"
        )
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler


def test_a_full_disk_of_rocksdb_is_named_and_the_job_continues_once_there_is_room(
    small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {**checkpoints(tmp_path / "checkpoints"), **restarts(10_000)}
    client = counting(small_disk, tmp_path / "out", 2000.0, options).execute_async("fat")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    filler = fill(small_disk)
    wait_until(lambda: client.report().restarts > 0, "a restart")
    filler.unlink()
    client.wait(timeout_ms=120_000)
    told = capfd.readouterr().err
    assert f"The disk of {small_disk} has " in told or f"can be made in {small_disk}" in told
    assert "state.backend.rocksdb.localdir" in told
    assert committed(tmp_path / "out") == LINES
    wait_until(lambda: not list(small_disk.iterdir()), "the end of RocksDB's files")


def test_a_disk_that_is_too_small_for_a_restore_is_reported_before_it_begins(small_disk: Path, tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    options = {**checkpoints(root), **KEPT, **restarts(5)}
    client = counting(tmp_path / "large", out, 4000.0, options).execute_async("fat")
    wait_until(lambda: len(committed(out)) > KEYS, "most of the state")
    client.cancel().result(90)
    fill(small_disk)
    (small_disk / "filler").rename(small_disk / "rest")
    with (small_disk / "rest").open("r+b") as file:
        file.truncate((small_disk / "rest").stat().st_size - 2**20)  # room for the directories, not for the state
    resumed = {"execution_state__recovery_path": str(root / str(client.get_job_id())), **checkpoints(root)}
    env = counting(small_disk, out, None, {**resumed, **restarts(0)})
    message = failure(lambda: env.execute("fat"))
    assert "restores takes at least" in message and f"The disk of {small_disk} has " in message
    assert "name directories of a larger disk with state.backend.rocksdb.localdir" in message
    env = counting(tmp_path / "large", out, None, {**resumed, **restarts(5)})
    env.execute_async("fat").wait(timeout_ms=90_000)
    assert committed(out) == LINES


WRITTEN = 1500
"""Keys that are written: too few for a compaction, which would find a damaged file, too."""


class WriteOnly(KeyedProcessFunction):
    """Keeps a kilobyte for each of the first keys, and reads none of it: only checkpoints do."""

    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
        if row[1] < WRITTEN:
            self.kept.update(f"{row[1]:>1000}")
        yield str(row[1])


def damage(directory: Path) -> int:
    """Damage the data of RocksDB's files in place, again with the same bytes if they are damaged. Returns how many
    there are.
    """
    found = 0
    for path in directory.rglob("*.sst"):
        with suppress(FileNotFoundError):  # RocksDB merges files meanwhile
            if path.stat().st_size > 2**18:
                found += 1
                with path.open("r+b") as file:
                    data = bytearray(file.read(2**18))
                    data[50::50] = b"\xa5" * len(data[50::50])
                    file.seek(0)
                    file.write(data)
    return found


def test_a_file_of_rocksdb_that_only_a_checkpoint_finds_damaged_restarts_the_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {**checkpoints(tmp_path / "checkpoints"), **restarts(10_000)}
    options |= {"execution_checkpointing_tolerable__failed__checkpoints": "1000"}
    options |= {"state_backend_rocksdb_writebuffer_size": "1 mb", "state_backend_rocksdb_writebuffer_count": "2"}
    options |= {"state_backend_rocksdb_writebuffer_number__to__merge": "1"}
    env = environment(1, **options)
    backend = EmbeddedRocksDBStateBackend(False)
    backend.set_db_storage_paths(str(tmp_path / "local"))
    env.set_state_backend(backend)
    rows = numbers(env, 3000, 300.0).map(lambda i: (i, i), PAIR)
    rows.key_by(lambda p: p[0], Types.LONG()).process(WriteOnly(), Types.STRING()).sink_to(file_sink(tmp_path / "out"))
    client = env.execute_async("write only")
    # Again and again: a file that RocksDB has merged into others may still be there, and nothing reads it.
    wait_until(lambda: damage(tmp_path / "local") and client.report().restarts > 0, "a restart")
    client.wait(timeout_ms=90_000)
    assert "orruption" in capfd.readouterr().err
    assert committed(tmp_path / "out") == {str(i): 1 for i in range(3000)}
