"""Tests two sources on a real Spark: the fast one waits for the slow one, if both are in a group."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream.connectors.datagen import DataGeneratorSource
from tests.spark.small_jobs import checkpoints, committed, environment, file_sink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

SLOW_ROWS, FAST_ROWS = 300, 30_000
SLOW_STEP_MS = 100
DRIFT_MS = 2_000
SLICE_MS = 500


def in_group(step_ms: int) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row * step_ms)
    return strategy.with_watermark_alignment("orders", DRIFT_MS, 20)


def with_time(name: str) -> Callable[[int], str]:
    """Name a row, and say when it was read; all processes of a machine have one monotonic clock."""
    return lambda i: f"{name} {i} {time.monotonic_ns()}"


def declared(env: Any, out: Path) -> Any:
    """Both cover 30 s of event time: 300 rows, 30 a second, and 30,000 rows without a limit."""
    slow = DataGeneratorSource(lambda i: i, SLOW_ROWS, type_info=Types.LONG(), rows_per_second=30)
    fast = DataGeneratorSource(lambda i: i, FAST_ROWS, type_info=Types.LONG())
    slow_rows = env.from_source(slow, in_group(SLOW_STEP_MS), "slow", Types.LONG()).map(
        with_time("slow"), Types.STRING()
    )
    fast_rows = env.from_source(fast, in_group(1), "fast", Types.LONG()).map(with_time("fast"), Types.STRING())
    slow_rows.union(fast_rows).sink_to(file_sink(out))
    return env


def test_a_fast_source_waits_for_the_slow_one_of_its_group(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {**checkpoints(tmp_path / "checkpoints"), "pipeline_auto__watermark__interval": "10 ms"}
    declared(environment(1, **options), out).execute_async("aligned").wait(timeout_ms=60_000)
    rows = sorted((int(at_ns), name, int(i)) for name, i, at_ns in (line.split() for line in committed(out)))
    assert [i for _, name, i in rows if name == "slow"] == list(range(SLOW_ROWS))
    assert [i for _, name, i in rows if name == "fast"] == list(range(FAST_ROWS))

    slow_ms, ahead_ms = 0, []
    for _, name, i in rows:
        if name == "slow":
            slow_ms = i * SLOW_STEP_MS
        elif 10_000 <= slow_ms < 20_000:  # long after both have started, long before either ends
            ahead_ms.append(i - slow_ms)
    # A late report of the slow source only holds the fast one back; one slice is read before the source looks again.
    assert max(ahead_ms) < DRIFT_MS + SLICE_MS, f"the fast source was {max(ahead_ms)} ms ahead"
    assert max(ahead_ms) > 0, "but it reads as far as it may"
