"""History from files, then what is new, on a real Spark: exact while slots are killed and across a stop in the history;
checkpoints wait for the end of the history.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors.hybrid_source import HybridSource
from tests.spark.small_jobs import WAIT_S, checkpoints, committed, environment, file_sink, restarts, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

FILES, ROWS_PER_FILE, NEW = 4, 500, 1500
HISTORY = FILES * ROWS_PER_FILE
ROW_S = 0.002


def declared(env: StreamExecutionEnvironment, folder: Path) -> StreamExecutionEnvironment:
    """Write `<row> <when it was read, in ms>` for each row; reading one takes 2 ms. What row has been read is shown."""
    history, seen = folder / "history", folder / "seen"
    seen.mkdir(exist_ok=True)
    if not history.exists():
        history.mkdir()
        for file in range(FILES):
            lines = (f"{file * ROWS_PER_FILE + row}\n" for row in range(ROWS_PER_FILE))
            (history / f"{file}.txt").write_text("".join(lines), encoding="utf-8")

    def slowly(row: str) -> str:
        time.sleep(ROW_S)
        if int(row) % 100 == 50:
            (seen / row).touch()
        return f"{row} {int(time.time() * 1000)}"

    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(history)).build()
    new = DataGeneratorSource(lambda index: str(HISTORY + index), NEW, type_info=Types.STRING())
    source = HybridSource.builder(files).add_source(new).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").map(slowly, Types.STRING())
    rows.sink_to(file_sink(folder / "out"))
    return env


def rows_seen(folder: Path) -> set[int]:
    return {int(path.name) for path in (folder / "seen").iterdir()}


def read_at_ms(folder: Path) -> dict[int, int]:
    """Return when each row was read. Fails if a row is missing, or was committed twice."""
    lines = [line.split() for line in committed(folder / "out").elements()]
    assert Counter(int(row) for row, _ in lines) == dict.fromkeys(range(HISTORY + NEW), 1)
    return {int(row): int(at_ms) for row, at_ms in lines}


def kill_a_slot(client: Any, count: int) -> None:
    wait_until(lambda: client.report().state == "RUNNING" and all(client.report().slot_pids), "slots")
    os.kill(client.report().slot_pids[count % 2], signal.SIGKILL)
    wait_until(lambda: client.report().restarts > count, "a restart")


def test_kills_in_the_history_behind_it_and_no_checkpoint_before_its_end(tmp_path: Path) -> None:
    options = {
        **checkpoints(tmp_path / "checkpoints"),
        **restarts(10),
        "execution_checkpointing_interval__during__backlog": "0 ms",
        "web_checkpoints_history": "1000",
    }
    client = declared(environment(2, **options), tmp_path).execute_async("history first")
    wait_until(lambda: len(rows_seen(tmp_path)) >= 6, "rows of the history")
    assert max(rows_seen(tmp_path)) < HISTORY and client.report().completed == 0
    kill_a_slot(client, 0)
    wait_until(lambda: max(rows_seen(tmp_path)) >= HISTORY and client.report().completed >= 2, "what is new")
    kill_a_slot(client, 1)
    client.wait(timeout_ms=WAIT_S * 1000)

    at_ms, report = read_at_ms(tmp_path), client.report()
    history_ms = max(ms for row, ms in at_ms.items() if row < HISTORY)
    assert history_ms <= min(ms for row, ms in at_ms.items() if row >= HISTORY)
    triggered_ms = [checkpoint.trigger_wall_ms for checkpoint in report.checkpoints]
    assert len(triggered_ms) >= report.completed >= 10, "they come at their interval behind the history"
    assert min(triggered_ms) >= history_ms, "and none while it was read, for seconds"
    assert report.restarts == 2


@pytest.mark.parametrize("drains", [False, True])
def test_stopped_in_the_history_and_resumed_at_another_parallelism(drains: bool, tmp_path: Path) -> None:
    during = {"execution_checkpointing_interval__during__backlog": "0 ms"}
    env = environment(2, **checkpoints(tmp_path / "checkpoints"), **during)
    client = declared(env, tmp_path).execute_async("history first")
    wait_until(lambda: len(rows_seen(tmp_path)) >= 4, "rows of the history")
    savepoint = client.stop_with_savepoint(drains, str(tmp_path / "savepoints")).result()
    assert len(rows_seen(tmp_path)) >= 4 and max(rows_seen(tmp_path)) < HISTORY

    resumed = {**checkpoints(tmp_path / "more"), **during, "execution_state__recovery_path": savepoint}
    declared(environment(3, **resumed), tmp_path).execute_async("history first").wait(timeout_ms=WAIT_S * 1000)
    at_ms = read_at_ms(tmp_path)
    assert max(ms for row, ms in at_ms.items() if row < HISTORY) <= min(
        ms for row, ms in at_ms.items() if row >= HISTORY
    )
