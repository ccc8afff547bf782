"""Two sources on a real Spark: the fast one waits for the slow one, if both are in a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream.connectors.datagen import DataGeneratorSource
from tests.spark.small_jobs import checkpoints, committed, environment, file_sink, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

SLOW_ROWS, FAST_ROWS = 300, 30_000
DRIFT_MS = 2_000


def in_group(step_ms: int) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row * step_ms)
    return strategy.with_watermark_alignment("orders", DRIFT_MS, 20)


def declared(env: Any, out: Path) -> Any:
    """Both cover 30 s of event time: 300 rows, 100 a second, and 30,000 rows without a limit."""
    slow = DataGeneratorSource(lambda i: i, SLOW_ROWS, type_info=Types.LONG(), rows_per_second=100)
    fast = DataGeneratorSource(lambda i: i, FAST_ROWS, type_info=Types.LONG())
    slow_rows = env.from_source(slow, in_group(100), "slow", Types.LONG()).map(lambda i: f"slow {i}", Types.STRING())
    fast_rows = env.from_source(fast, in_group(1), "fast", Types.LONG()).map(lambda i: f"fast {i}", Types.STRING())
    slow_rows.union(fast_rows).sink_to(file_sink(out))
    return env


def test_a_fast_source_waits_for_the_slow_one_of_its_group(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {**checkpoints(tmp_path / "checkpoints"), "pipeline_auto__watermark__interval": "10 ms"}
    client = declared(environment(1, **options), out).execute_async("aligned")

    def rows(source: str) -> int:
        return sum(v.rows_out for v in client.report().vertices if f"Source: {source}" in v.name)

    wait_until(lambda: rows("slow") >= SLOW_ROWS // 3, "a third of the slow source")
    slow_ms, fast_ms = rows("slow") * 100, rows("fast")
    ahead_ms = fast_ms - slow_ms
    assert ahead_ms < DRIFT_MS + 5_000, f"the fast source is {ahead_ms} ms ahead"
    assert fast_ms > 2_000, "but it reads as far as it may"
    client.wait(timeout_ms=60_000)
    assert len(committed(out)) == SLOW_ROWS + FAST_ROWS
