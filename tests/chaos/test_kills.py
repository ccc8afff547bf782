"""Exactness on a real Spark while slots are killed at random, with a checkpoint every 100 ms."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from tests.chaos import every_edge

ROWS, ROWS_PER_SECOND, PARALLELISM = 6000, 500.0, 2
KILLS = 5


def options(directory: Path, **more: str) -> Configuration:
    chosen = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 ms",
        # Small bounds: everything is full, so every checkpoint has something in flight on every edge.
        "penstock.network.bound-target": "0 ms",
        "penstock.network.window-bytes": "16 kb",
        "penstock.network.output-queue-bytes": "16 kb",
    }
    return Configuration({**chosen, **{key.replace("_", "."): value for key, value in more.items()}})


MODES = {
    "aligned": {},
    "timeout": {"execution.checkpointing.unaligned.enabled": "true",
                "execution.checkpointing.aligned-checkpoint-timeout": "20 ms"},
    "unaligned": {"execution.checkpointing.unaligned.enabled": "true"},
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_every_edge_stays_exact_while_slots_are_killed(mode: str, tmp_path: Path, spark_session: object) -> None:
    configuration = options(tmp_path)
    for key, value in MODES[mode].items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    output = str(tmp_path / "output")
    every_edge.build(env, output, ROWS, ROWS_PER_SECOND, PARALLELISM)
    client = env.execute_async(f"every edge, {mode}")
    chance = random.Random(mode)
    killed = 0
    ended = client.get_job_execution_result()
    deadline = time.monotonic() + 120
    while killed < KILLS and not ended.done() and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 2.0))  # the schedule of the kills, not a wait for a condition
        report = client.report()
        if report is not None and report.state == "RUNNING" and report.completed and all(report.slot_pids):
            os.kill(chance.choice(report.slot_pids), signal.SIGKILL)
            killed += 1
    client.wait(timeout_ms=120_000)
    report = client.report()
    assert every_edge.violations(output, ROWS, PARALLELISM) == []
    assert killed == KILLS
    assert report.restarts >= 1
