"""Tests savepoints on a real Spark: under backpressure, self-contained, and as the way to stop and start a job
exactly.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Time, TimestampAssigner, Types, WatermarkStrategy
from penstock.common.job_execution import SavepointFailed
from penstock.datastream import JobClient
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.protocol.restore.given_up import without_rows_in_flight
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
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

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
ROWS = 2400
WAIT_S = 60.0
UNALIGNED = {
    "execution_checkpointing_unaligned_enabled": "true",
    "execution_checkpointing_aligned__checkpoint__timeout": "0 ms",
}
EXPECTED = Counter({f"{key}:{n}": 1 for key in range(13) for n in range(1, len(range(key, ROWS, 13)) + 1)})


def counting(env: Any, out: Path, pause_s: float = 0.0, rows: int = ROWS) -> Any:
    """Declares a job whose n-th line of key k is `k:n`, so a row that is lost or counts twice shows. A sum takes
    `pause_s` until `finish` is called."""
    hurries = out.with_name("hurries")

    def slowly(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        if pause_s and not hurries.exists():
            time.sleep(pause_s)
        return (a[0], a[1] + b[1])

    keyed = numbers(env, rows).rebalance().map(lambda i: (i % 13, 1), PAIR).key_by(lambda p: p[0], Types.LONG())
    counted = keyed.reduce(slowly)
    counted.rebalance().map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(file_sink(out))
    return env


def finish(client: JobClient, out: Path) -> None:
    """Let a job that is slow count the rest of its rows at once, and wait for its end."""
    out.with_name("hurries").touch()
    client.wait(timeout_ms=WAIT_S * 1000)


def test_a_job_stopped_with_a_savepoint_under_backpressure_continues_elsewhere_exactly(tmp_path: Path) -> None:
    root, out, savepoints = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "savepoints"
    options = {**checkpoints(root), **UNALIGNED, "execution_checkpointing_savepoint__dir": str(savepoints)}
    client = counting(environment(2, **options), out, pause_s=0.004).execute_async("counting")
    wait_until(lambda: client.report().completed >= 4, "checkpoints under backpressure")
    started = time.monotonic()
    first = Path(client.trigger_savepoint().result(WAIT_S))
    took_s = time.monotonic() - started
    assert took_s < 10, f"a savepoint does not wait for what is in flight, but took {took_s:.1f} s"
    assert client.get_job_status().result().name == "RUNNING"
    stopped = Path(client.stop_with_savepoint().result(WAIT_S))
    assert client.get_job_status().result().name == "FINISHED"
    assert first.parent == stopped.parent == savepoints and first != stopped
    assert edges_in_flight(read_metadata(open_store(str(stopped)), "_metadata")), "rows were in flight"
    half = committed(out)
    assert half and not half - EXPECTED, "what was committed is final"
    # Self-contained: it is moved, and the job that took it is gone.
    moved = tmp_path / "elsewhere" / "my savepoint"
    shutil.move(str(stopped), moved)
    shutil.rmtree(root)
    options = {"execution_state__recovery_path": str(moved), **checkpoints(tmp_path / "new"), **UNALIGNED}
    counting(environment(3, **options), out).execute_async("counting").wait(timeout_ms=WAIT_S * 1000)
    assert committed(out) == EXPECTED


def test_an_aligned_savepoint_of_an_unaligned_job_holds_no_rows_in_flight(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    client = counting(environment(2, **checkpoints(root), **UNALIGNED), out, pause_s=0.004).execute_async("counting")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    directory = client.trigger_savepoint(str(tmp_path / "savepoints"), aligned=True).result(WAIT_S)
    assert not edges_in_flight(read_metadata(open_store(directory), "_metadata"))
    reports = [c for c in client.report().checkpoints if c.is_savepoint]
    assert [(c.status, c.path, c.unaligned) for c in reports] == [("completed", directory, False)]
    finish(client, out)
    assert committed(out) == EXPECTED, "output that a savepoint has prepared is committed by the next checkpoint"


def test_a_savepoint_that_cannot_be_written_fails_and_the_job_continues(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    # An aligned one may complete only when all rows have been counted, and then the job is over.
    client = counting(environment(2, **checkpoints(root), **UNALIGNED), out, pause_s=0.004).execute_async("counting")
    wait_until(lambda: client.report().completed >= 1, "a checkpoint")
    with pytest.raises(
        SavepointFailed, match="needs a directory: name one, or set execution.checkpointing.savepoint-dir"
    ):
        client.trigger_savepoint().result(WAIT_S)
    (tmp_path / "a file").write_text("not a directory")
    with pytest.raises(SavepointFailed, match="a file/savepoint-.* cannot be written"):
        client.stop_with_savepoint(savepoint_directory=str(tmp_path / "a file")).result(WAIT_S)
    finish(client, out)
    assert committed(out) == EXPECTED
    with pytest.raises(SavepointFailed, match="the job has ended"):
        client.trigger_savepoint(str(tmp_path)).result(WAIT_S)


def test_a_savepoint_whose_directory_is_removed_while_it_is_written_fails_and_the_job_continues(tmp_path: Path) -> None:
    out, gate, savepoints = tmp_path / "out", tmp_path / "gate", tmp_path / "savepoints"
    waiting = tmp_path / "a row waits, so its subtask takes no snapshot"

    def pass_gate(number: int) -> int:
        while gate.exists():
            waiting.touch()
            time.sleep(0.005)
        return number

    # Nothing of the checkpoint may be tolerated: what somebody does to a savepoint is no failure of the job.
    options = {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED}
    env = environment(2, **options, execution_checkpointing_tolerable__failed__checkpoints="0")
    rows = numbers(env, ROWS, 1_000.0).map(pass_gate, Types.LONG())
    rows.rebalance().map(lambda i: str(i), Types.STRING()).sink_to(file_sink(out))
    client = env.execute_async("gated")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    gate.touch()
    wait_until(waiting.exists, "a row at the gate")
    ordered = client.trigger_savepoint(str(savepoints))
    wait_until(lambda: any(savepoints.glob("savepoint-*")), "the savepoint's directory")
    (directory,) = savepoints.iterdir()
    shutil.rmtree(directory)
    gate.unlink()
    with pytest.raises(SavepointFailed, match=f"{directory} was not taken: .*{directory}"):
        ordered.result(WAIT_S)
    assert client.get_job_status().result().name == "RUNNING" and client.report().restarts == 0
    assert Path(client.trigger_savepoint(str(savepoints)).result(WAIT_S), "_metadata").exists()
    client.wait(timeout_ms=WAIT_S * 1000)
    assert not directory.exists() and client.report().restarts == 0
    assert committed(out) == Counter(str(i) for i in range(ROWS))


def test_a_slot_that_is_killed_fails_the_stop_and_the_job_continues(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    options = {**checkpoints(root), **UNALIGNED, "restart__strategy_type": "fixed-delay"}
    options |= {"restart__strategy_fixed__delay_attempts": "10", "restart__strategy_fixed__delay_delay": "10 ms"}
    client = counting(environment(2, **options), out, pause_s=0.004).execute_async("counting")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    pid = next(pid for pid in client.report().slot_pids if pid is not None)
    os.kill(pid, 9)
    stop = client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints"))
    error = stop.exception(WAIT_S)
    if error is None:  # the savepoint was faster
        directory = stop.result()
        options |= {"execution_state__recovery_path": directory, **checkpoints(tmp_path / "new")}
        counting(environment(2, **options), out).execute_async("counting").wait(timeout_ms=WAIT_S * 1000)
    else:
        assert isinstance(error, SavepointFailed) and "was not taken" in str(error)
        finish(client, out)
        assert not list((tmp_path / "savepoints").glob("*")), "nothing is left of the savepoint that failed"
    assert committed(out) == EXPECTED


class Millis(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def test_a_drained_job_fires_its_windows_and_its_savepoint_starts_time_again(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"

    def windows(env: Any, pause: float | None) -> Any:
        source = DataGeneratorSource(lambda i: i, 6_000, type_info=Types.LONG(), rows_per_second=pause)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Millis())
        rows = env.from_source(source, strategy, "numbers", Types.LONG())
        keyed = rows.map(lambda i: (i % 3, 1), PAIR).key_by(lambda p: p[0], Types.LONG())
        counted = keyed.window(TumblingEventTimeWindows.of(Time.seconds(3))).reduce(lambda a, b: (a[0], a[1] + b[1]))
        counted.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(file_sink(out))
        return env

    client = windows(environment(2, **checkpoints(root), **KEPT), 1_500.0).execute_async("windows")
    wait_until(lambda: client.report().completed >= 3, "checkpoints")
    stop = client.stop_with_savepoint(True, str(tmp_path / "savepoints"))
    directory = stop.result(WAIT_S)
    metadata = read_metadata(open_store(directory), "_metadata")
    assert metadata.drained and not edges_in_flight(metadata)
    fired = sum(int(line.partition(":")[2]) * n for line, n in committed(out).items())
    assert 0 < fired < 6_000, "the open windows have fired with what they had"
    options = {"execution_state__recovery_path": directory, **checkpoints(tmp_path / "new")}
    windows(environment(2, **options), None).execute_async("windows").wait(timeout_ms=WAIT_S * 1000)
    assert sum(int(line.partition(":")[2]) * n for line, n in committed(out).items()) == 6_000, "every row counts once"


def test_a_savepoint_that_lost_a_file_is_refused_by_name(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    env = environment(2, **checkpoints(root), **UNALIGNED)
    client = counting(env, out, pause_s=0.004, rows=40 * ROWS).execute_async("counting")
    wait_until(lambda: client.report().completed >= 1, "a checkpoint")
    directory = Path(client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints")).result(WAIT_S))
    (segment, *_) = [file for file in directory.iterdir() if file.is_file() and file.name != "_metadata"]
    segment.unlink()
    options = {"execution_state__recovery_path": str(directory), **checkpoints(tmp_path / "new")}
    told = failure(lambda: counting(environment(2, **options), out).execute_async("counting"))
    assert f"savepoint {directory} cannot be restored" in told and segment.name in told
    options["execution_state__recovery_path"] = str(tmp_path / "savepoints")
    told = failure(lambda: counting(environment(2, **options), out).execute_async("counting"))
    assert "neither a savepoint (it has no _metadata), nor a job's directory" in told


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def test_a_damaged_range_of_rows_in_flight_is_refused_by_name_and_may_be_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    client = counting(environment(2, **checkpoints(root), **UNALIGNED), out, pause_s=0.004).execute_async("counting")
    wait_until(lambda: client.report().completed >= 3, "checkpoints under backpressure")
    directory = client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints")).result(WAIT_S)
    metadata = read_metadata(open_store(directory), "_metadata")
    edge, producer, consumer, piece = next(
        (cut.edge, c.peer, s.subtask, c.pieces[0])
        for s in metadata.subtasks for cut in s.inputs for c in cut.captures if c.pieces
    )  # fmt: skip
    flip(Path(directory, metadata.segments[piece.segment].path), piece.offset + piece.length_bytes // 2)
    options = {"execution_state__recovery_path": directory, **checkpoints(tmp_path / "new"), **UNALIGNED}
    options["restart__strategy_type"] = "none"
    told = failure(lambda: counting(environment(2, **options), out).execute_async("counting").wait(timeout_ms=60_000))
    assert "in-flight data of channel" in told and str(directory) in told
    assert f"without-channel-state.checkpoint-id to {metadata.checkpoint_id}" in told
    # A second job starts from the same savepoint, where the first one has committed its output up to there.
    again = out.with_name("again")
    shutil.copytree(out, again)
    options["execution_state__recovery_without__channel__state_checkpoint__id"] = str(metadata.checkpoint_id)
    options |= checkpoints(tmp_path / "newer")
    counting(environment(2, **options), out).execute_async("counting").wait(timeout_ms=WAIT_S * 1000)
    lost = EXPECTED - committed(out)
    _, given_up = without_rows_in_flight(metadata)
    assert not committed(out) - EXPECTED, "nothing is there twice"
    assert 0 < sum(lost.values()) <= sum(channel.rows for channel in given_up)
    # Of all those channels one is damaged: the rows of the others are read.
    channel = f"{edge}[{producer} -> {consumer}]"
    assert f"channel {channel}" in told and "penstock.state-recovery.without-channel-state.channels" in told
    options["penstock_state__recovery_without__channel__state_channels"] = channel
    options |= checkpoints(tmp_path / "newest")
    capfd.readouterr()
    counting(environment(2, **options), again).execute_async("counting").wait(timeout_ms=WAIT_S * 1000)
    (damaged,) = [one for one in given_up if one.channel == channel]
    assert f"  {damaged}\n" in capfd.readouterr().err and len(given_up) > 1
    lost = EXPECTED - committed(again)
    assert not committed(again) - EXPECTED and 0 < sum(lost.values()) <= damaged.rows


def test_damaged_state_and_damaged_metadata_are_refused_by_name(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    env = environment(2, **checkpoints(root), **UNALIGNED)
    client = counting(env, out, pause_s=0.004, rows=40 * ROWS).execute_async("counting")
    wait_until(lambda: committed(out), "output that a checkpoint has committed, so state of some keys")
    directory = Path(client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints")).result(WAIT_S))
    before = committed(out)
    metadata = read_metadata(open_store(str(directory)), "_metadata")
    kept, vertex = next((s.keyed[0], s.vertex) for s in metadata.subtasks if s.keyed)
    operator = metadata.vertices[vertex].operator_names[metadata.vertices[vertex].operators.index(kept.operator)]
    segment = directory / metadata.segments[kept.segment].path
    flip(segment, kept.offset + kept.length_bytes // 2)

    def start(name: str) -> str:
        # What is damaged stays so: no restart helps.
        options = {**checkpoints(tmp_path / name), **UNALIGNED, **restarts(3)}
        options["execution_state__recovery_path"] = str(directory)
        return failure(lambda: counting(environment(2, **options), out).execute_async(name).wait(timeout_ms=60_000))

    told = start("with damaged state")
    assert f"{directory} cannot be restored: keyed state '{kept.name}' of operator '{operator}' is damaged" in told
    assert f"segment {segment.name}, {kept.length_bytes} bytes at {kept.offset}" in told
    assert "Start from another savepoint or checkpoint" in told and "without-channel-state" not in told, told

    flip(segment, kept.offset + kept.length_bytes // 2)  # whole again
    file = directory / "_metadata"
    flip(file, file.stat().st_size // 2)
    told = start("with damaged metadata")
    assert f"savepoint {directory} cannot be restored: _metadata is damaged: its checksum does not match" in told
    assert "Start from another savepoint or checkpoint" in told, told
    assert not (tmp_path / "with damaged metadata").exists(), "refused before anything of the new job is made"
    assert committed(out) == before
