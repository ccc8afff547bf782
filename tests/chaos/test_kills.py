"""Tests exactness on a real Spark while slots are killed at random, with a checkpoint every 100 ms."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import JobClient, StreamExecutionEnvironment
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
CONCURRENT = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.max-concurrent-checkpoints": "4",
    "execution.checkpointing.interval": "30 ms",
    # Before they turn unaligned, full queues hold them up for so long that the next ones are triggered.
    "execution.checkpointing.aligned-checkpoint-timeout": "150 ms",
}
ADAPTIVE = {
    "execution.checkpointing.unaligned.enabled": "true",
    "jobmanager.scheduler": "adaptive",
    # Shorter than a process needs to come back, so the job shrinks at a kill, and grows again.
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "100 ms",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "100 ms",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "100 ms",
}


def kill_slots(client: JobClient, chance: random.Random, kills: int) -> list[Any]:
    """Kill so many slots of a running job at random, each after a checkpoint. Return the reports before the kills."""
    seen: list[Any] = []
    ended = client.get_job_execution_result()
    deadline = time.monotonic() + 120
    while len(seen) < kills and not ended.done() and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 2.0))  # the schedule of the kills, not a wait for a condition
        report = client.report()
        if report is not None and report.state == "RUNNING" and report.completed and all(report.slot_pids):
            os.kill(chance.choice(report.slot_pids), signal.SIGKILL)
            seen.append(report)
    return seen


def run_under_kills(mode: str, options_of_mode: dict[str, str], folder: Path, copies: int = PARALLELISM) -> list[Any]:
    """Run the job with every edge to its end. Return the reports before the kills, and that of the end. `copies` 0:
    without its broadcast, whose output depends on the parallelism."""
    configuration = options(folder)
    for key, value in options_of_mode.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    output = str(folder / "output")
    every_edge.build(env, output, ROWS, ROWS_PER_SECOND, PARALLELISM, bool(copies))
    client = env.execute_async(f"every edge, {mode}")
    seen = kill_slots(client, random.Random(mode), KILLS)
    client.wait(timeout_ms=120_000)
    assert every_edge.violations(output, ROWS, copies) == []
    assert len(seen) == KILLS
    return [*seen, client.report()]


@pytest.mark.parametrize("mode", MODES)
def test_every_edge_stays_exact_while_slots_are_killed(mode: str, tmp_path: Path, spark_session: object) -> None:
    assert run_under_kills(mode, MODES[mode], tmp_path)[-1].restarts >= 1


def test_every_edge_stays_exact_with_several_checkpoints_at_once(tmp_path: Path, spark_session: object) -> None:
    reports = run_under_kills("concurrent", CONCURRENT, tmp_path)
    assert reports[-1].restarts >= 1
    done = [c for report in reports for c in report.checkpoints if c.status == "completed"]
    ends_ms = [c.trigger_wall_ms + c.duration_ms for c in done]
    at_once = max(sum(c.trigger_wall_ms <= at_ms < end_ms for c, end_ms in zip(done, ends_ms)) for at_ms in ends_ms)
    assert any(c.unaligned for c in done) and at_once >= 2, f"{at_once} at once, {len(done)} of them seen"


def test_every_edge_stays_exact_while_an_adaptive_job_loses_slots(tmp_path: Path, spark_session: object) -> None:
    reports = run_under_kills("adaptive", ADAPTIVE, tmp_path, copies=0)
    rescales = {(r.before[0], r.after[0]) for report in reports for r in report.rescales}
    assert rescales == {(2, 1), (1, 2)}, rescales
