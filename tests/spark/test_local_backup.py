"""A slot is killed on a real Spark, and its successor restores from the local copies, or does without damaged ones."""

from __future__ import annotations

import json
import os
from collections import Counter
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


# ---- a database that is opened as it was ----------------------------------------------------------------------------

FEW = 20
FIRST = 800


def key_of(row: int) -> int:
    """Every row has a key of its own at first, so that there is state that does not change any more."""
    return row if row < FIRST else row % FEW


def copied_runs(local: Path, job: Path) -> dict[Path, list[dict[str, Any]]]:
    """Return the runs that copies of databases have, by slot, as far as the newest checkpoint still names them."""
    found = {}
    for sealed in local.glob("*/databases/*/sealed.json"):
        with suppress(FileNotFoundError):  # it is being deleted
            states = json.loads((sealed.parent / "content.json").read_bytes())["states"]
            runs = [run for state in states for run in state["runs"]]
            if all((job / run["path"]).exists() for run in runs):
                found[sealed.parents[2]] = runs
    return found


def damage_runs(local: Path, job: Path) -> None:
    """Overwrite the runs that copies of databases have, wherever they are stored."""
    for run in (run for runs in copied_runs(local, job).values() for run in runs):
        name = Path(run["path"]).name
        for path in (job / run["path"], *local.glob(f"*/segments/{name}")):
            with open(path, "r+b") as file:
                file.seek(run["offset"])
                file.write(b"\xa5" * run["length_bytes"])


def test_a_killed_slot_opens_the_copy_of_its_database(tmp_path: Path) -> None:
    """The entries that the copies have are nowhere else any more."""
    root, out, local = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "local"
    options = {
        "execution_checkpointing_interval": "500 ms",
        "execution_checkpointing_local__backup_enabled": "true",
        "execution_checkpointing_local__backup_dirs": str(local),
        "execution_checkpointing_incremental": "true",
        "state_backend_type": "rocksdb",
        # Copies are links, so they lie on the database's own disk.
        "state_backend_rocksdb_localdir": str(tmp_path / "rocksdb"),
        "penstock_state_rocksdb_local__copy__size": "1 b",
    }
    env = environment(2, **(checkpoints(root) | restarts(10) | options))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    keyed = numbers(env, ROWS, 300.0).rebalance().map(lambda i: (key_of(i), i), pair).key_by(lambda p: p[0])
    keyed.process(Count(), Types.STRING()).sink_to(file_sink(out))
    client = env.execute_async("counting")

    job = root / str(client.get_job_id())
    wait_until(lambda: client.report().completed >= 8 and len(copied_runs(local, job)) == 2, "copies of both databases")
    completed = client.report().completed
    wait_until(lambda: client.report().completed > completed, "a moment in which no checkpoint is taken")
    assert len(copied_runs(local, job)) == 2
    damage_runs(local, job)
    os.kill(next(pid for pid in client.report().slot_pids if pid is not None), 9)
    client.wait(timeout_ms=WAIT_S * 1000)

    assert client.report().generation > 1
    counts = Counter(map(key_of, range(ROWS)))
    assert committed(out) == {f"{key}:{n}": 1 for key, rows in counts.items() for n in range(1, rows + 1)}
    wait_until(lambda: not list(local.iterdir()), "the end of the copies")
