"""A slot is killed on a real Spark, and its successor restores from the local copies, or does without damaged ones."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from tests.spark.small_jobs import (
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

ROWS = 2400
KEYS = 97
SEGMENTS = "*/segments/g*"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield f"{row[0]}:{n}"


def counting(root: Path, out: Path, **options: str) -> StreamExecutionEnvironment:
    env = environment(2, **(checkpoints(root) | restarts(10) | options))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    keyed = numbers(env, ROWS, 400.0).rebalance().map(lambda i: (i % KEYS, i), pair).key_by(lambda p: p[0])
    keyed.process(Count(), Types.STRING()).sink_to(file_sink(out))
    return env


def damage(folder: Path, pattern: str) -> int:
    """Overwrite files with other bytes; return how many there were."""
    count = 0
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError), open(path, "r+b") as file:  # an older checkpoint's are being deleted
            file.write(b"\xa5" * os.fstat(file.fileno()).st_size)
            count += 1
    return count


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("damaged", ["remote", "local"])
def test_a_killed_slot_restores_from_the_copies_that_are_sound(
    tmp_path: Path, backend: str, damaged: str, capfd: pytest.CaptureFixture[str]
) -> None:
    root, out, local = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "local"
    options = {
        "execution_checkpointing_interval": "1 s",
        "execution_checkpointing_local__backup_enabled": "true",
        "execution_checkpointing_local__backup_dirs": str(local),
        "execution_checkpointing_incremental": "true",
        "state_backend_type": backend,
    }
    client = counting(root, out, **options).execute_async("counting")
    wait_until(lambda: client.report().completed >= 3, "checkpoints")
    # All of them, at once: the next checkpoint comes a second later.
    if damaged == "remote":
        assert damage(root / str(client.get_job_id()) / "shared", "g*")
    else:
        assert damage(local, SEGMENTS) >= 2
    os.kill(next(pid for pid in client.report().slot_pids if pid is not None), 9)
    client.wait(timeout_ms=WAIT_S * 1000)

    assert client.report().generation > 1
    counts = {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
    assert committed(out) == {f"{key}:{n}": 1 for key, rows in counts.items() for n in range(1, rows + 1)}
    told = "".join(capfd.readouterr())
    assert ("is damaged" in told) is (damaged == "local")
    wait_until(lambda: not list(local.iterdir()), "the end of the copies")
