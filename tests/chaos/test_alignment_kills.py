"""Tests two sources of a watermark alignment group on a real Spark while slots are killed: every window is exact, and
the sources stay together.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.window import TumblingEventTimeWindows
from tests.chaos.test_kills import MODES, kill_slots, options
from tests.spark.small_jobs import committed, file_sink, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SLOW_ROWS, FAST_ROWS, STEP_MS = 1_200, 60_000, 50
"""Both cover 60 s of event time: 40 rows of the slow one in a second, and as many of the fast one as it may read."""
DRIFT_MS, KILLS = 2_000, 4
WINDOW_MS = 1_000
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def in_group(step_ms: int) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row * step_ms)
    return strategy.with_watermark_alignment("together", DRIFT_MS, 20)


def source(env: StreamExecutionEnvironment, name: str, rows: int, rows_per_second: float | None) -> Any:
    numbers = DataGeneratorSource(lambda i: i, rows, type_info=Types.LONG(), rows_per_second=rows_per_second)
    stream = env.from_source(numbers, in_group(SLOW_ROWS * STEP_MS // rows), name, Types.LONG()).set_parallelism(1)
    return stream.map(lambda i: (name, 1), PAIR).name(f"from {name}")


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_aligned_sources_lose_nothing_and_stay_together_while_slots_are_killed(
    mode: str, tmp_path: Path, spark_session: object
) -> None:
    configuration = options(tmp_path)
    for key, value in {**MODES[mode], "pipeline.auto-watermark-interval": "10 ms"}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    slow, fast = source(env, "slow", SLOW_ROWS, 40.0), source(env, "fast", FAST_ROWS, None)
    windows = slow.union(fast).key_by(lambda row: row[0], Types.STRING())
    windows = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    counted = windows.reduce(lambda a, b: (a[0], a[1] + b[1]))
    counted.map(lambda row: f"{row[0]} {row[1]}", Types.STRING()).sink_to(file_sink(tmp_path / "output"))
    client = env.execute_async(f"aligned sources, {mode}")

    def read_ms() -> dict[str, int]:
        """Return how far each source has read in event time since the job was restored."""
        vertices = client.report().vertices
        rows = {name: sum(v.rows_out for v in vertices if f"Source: {name}" in v.name) for name in ("slow", "fast")}
        return {"slow": rows["slow"] * STEP_MS, "fast": rows["fast"]}

    seen = kill_slots(client, random.Random(mode), KILLS)
    assert len(seen) == KILLS
    wait_until(lambda: client.report().restarts > seen[-1].restarts, "the last restart")
    wait_until(lambda: read_ms()["slow"] >= 8_000, "the slow source continues")
    read = read_ms()
    # When the job was restored one of them may have been ahead. Without alignment the fast one has read nothing since,
    # because it was at its end, or all of its rows.
    assert read["fast"] >= 2_000, "the fast source reads as far as it may"
    assert read["fast"] - read["slow"] < 3 * DRIFT_MS + 5_000, f"the fast source does not wait: {read}"
    client.wait(timeout_ms=120_000)
    windows_of = SLOW_ROWS * STEP_MS // WINDOW_MS
    expected = {f"slow {SLOW_ROWS // windows_of}": windows_of, f"fast {FAST_ROWS // windows_of}": windows_of}
    assert committed(tmp_path / "output") == expected
    assert client.report().restarts >= 1
