"""Takes savepoints of a job that goes on, on a real Spark, while slots are killed around them: the job stays exact, and
another job that starts from one puts out exactly what the savepoint says is left.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.savepoint_disposal import dispose
from penstock.common import Encoder, Types
from penstock.common.job_execution import JobExecutionError, SavepointFailed
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.protocol.restore.given_up import without_rows_in_flight
from penstock.state import read_checkpoint
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from tests.chaos.test_kills import kill_slots
from tests.chaos.test_upgrade_kills import KEYS, ROWS, SMALL, build, go_on, kill_one
from tests.spark.small_jobs import checkpoints, committed, environment, numbers, restarts, wait_until
from tests.spark.test_savepoints import UNALIGNED, WAIT_S, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

AROUND_S = (-1.0, 0.0, 0.002, 0.004, -1.0)
"""The times from the order of a savepoint to the kill of a slot; -1: the kill comes before the order, which is refused,
or fails, or finds the job restarted. Between them is one without a kill until the next checkpoint."""
COUNTS = {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
EXPECTED = Counter(f"{key}:0:{n}:{n}" for key in COUNTS for n in range(1, COUNTS[key] + 1))


def counted(savepoint: str, uid: str) -> dict[int, int]:
    """Return how many rows of each key an operator had counted."""
    found = dict.fromkeys(COUNTS, 0)
    for entry in read_checkpoint(savepoint).keyed_state(uid, "count").table().to_pylist():
        found[entry["key"]] = entry["value"]
    return found


def files_below(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def saved_between_kills(client: JobClient, savepoints: Path) -> str:
    """Take a savepoint right behind a restart, and kill a slot when the next checkpoint is completed."""
    kill_one(client, "before a savepoint")
    savepoint = client.trigger_savepoint(str(savepoints)).result(WAIT_S)
    go_on(client, drained=False)
    kill_one(client, "behind a savepoint")
    return savepoint


def test_savepoints_between_kills_hold_what_is_left_and_their_job_stays_exact(
    tmp_path: Path, spark_session: object
) -> None:
    out, again, savepoints, chance = tmp_path / "out", tmp_path / "again", tmp_path / "savepoints", random.Random(5)
    more = {**UNALIGNED, **SMALL, **restarts(1000)}
    client = build(environment(2, **checkpoints(tmp_path / "checkpoints"), **more), out, False).execute_async("first")
    assert len(kill_slots(client, chance, 1)) == 1
    taken = [saved_between_kills(client, savepoints)]
    for number, behind_s in enumerate(AROUND_S):
        restarted = client.report().restarts
        victim = client.report().slot_pids[number % 2]
        assert victim is not None
        if behind_s < 0:
            os.kill(victim, signal.SIGKILL)
        ordered = client.trigger_savepoint(str(savepoints))
        if behind_s >= 0:
            time.sleep(behind_s)  # the schedule of the kills, not a wait for a condition
            os.kill(victim, signal.SIGKILL)
        error = ordered.exception(WAIT_S)
        assert error is None or isinstance(error, SavepointFailed), error
        taken += [ordered.result()] if error is None else []
        wait_until(lambda: client.report().restarts > restarted, "the restart")
        go_on(client, drained=False)
    taken.append(saved_between_kills(client, savepoints))
    assert not client.get_job_execution_result().done()
    assert {str(path) for path in savepoints.iterdir()} == set(taken), "nothing is left of those that failed"

    # The first is deleted while the job runs. Nobody else's file is, and the job needs none of it.
    first, newest = taken[0], taken[-1]
    Path(first, "notes.txt").write_text("somebody else's")
    own, others = files_below(Path(first)), files_below(Path(newest))
    assert dispose(first) == (len(own) - 1, ["notes.txt"])
    assert files_below(Path(first)) == {"notes.txt"} and files_below(Path(newest)) == others
    kill_one(client, "behind the deletion")
    finish(client, out)
    assert client.report().restarts >= len(AROUND_S)
    assert committed(out) == EXPECTED

    # What is chained to the sink has counted what the sink had been given; the rest was in flight, or not read.
    metadata = read_metadata(open_store(newest), "_metadata")
    _, in_flight = without_rows_in_flight(metadata)
    between = {edge.name for edge in metadata.edges if metadata.vertices[edge.target].name.startswith("forgotten")}
    on_their_way = sum(channel.rows for channel in in_flight if channel.edge in between)
    read, written = counted(newest, "counts"), counted(newest, "forgotten")
    assert sum(read.values()) - sum(written.values()) == on_their_way
    assert sum(channel.rows for channel in in_flight) > 0 < sum(written.values()) < ROWS
    out.with_name("hurries").unlink()
    options = {**checkpoints(tmp_path / "new"), **more, "execution_state__recovery_path": newest}
    client = build(environment(2, **options), again, False).execute_async("second")
    assert len(kill_slots(client, chance, 1)) == 1
    finish(client, again)
    left = Counter(f"{key}:0:{n}:{n}" for key in COUNTS for n in range(written[key] + 1, COUNTS[key] + 1))
    assert committed(again) == left
    assert committed(out) == EXPECTED, "what the savepoint had prepared is the first job's"


@pytest.mark.parametrize("rolling", [RollingPolicy.on_checkpoint_rolling_policy, RollingPolicy.default_rolling_policy])
def test_a_savepoint_whose_files_its_job_has_removed_by_restarting_is_refused_by_name(
    rolling: Callable[[], RollingPolicy], tmp_path: Path, spark_session: object
) -> None:
    def declared(rows_per_second: float | None, **options: str) -> StreamExecutionEnvironment:
        env = environment(2, **options, **restarts(1000))
        lines = numbers(env, 4_000, rows_per_second).uid("numbers").map(str, Types.STRING()).uid("lines")
        sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        lines.sink_to(sink.with_rolling_policy(rolling()).build()).uid("files")
        return env

    options = checkpoints(tmp_path / "checkpoints", execution_checkpointing_interval="3 s")
    client = declared(200.0, **options).execute_async("first")
    wait_until(lambda: client.report().completed >= 1, "a checkpoint")
    written = client.report().vertices[0].rows_out
    wait_until(lambda: client.report().vertices[0].rows_out > written + 100, "rows behind it")
    savepoint = client.trigger_savepoint(str(tmp_path / "savepoints")).result(WAIT_S)
    os.kill(client.report().slot_pids[0] or 0, signal.SIGKILL)
    wait_until(lambda: client.report().restarts >= 1, "the restart")
    go_on(client)
    client.cancel().result(WAIT_S)
    options = checkpoints(tmp_path / "new", execution_state__recovery_path=savepoint)
    with pytest.raises(JobExecutionError, match="its job may have restarted before its next checkpoint"):
        declared(None, **options).execute_async("second").wait(timeout_ms=WAIT_S * 1000)
