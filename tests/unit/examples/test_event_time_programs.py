"""Tests the programs in examples/, each held against the same question answered in plain Python over its own rows."""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Callable

import pytest

from penstock.common import Duration
from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.protocol.values.elements import Generation
from tests.unit.runtime.jobs.small_job import CommittedRows, Completed, SmallJob

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@functools.cache
def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(streams: Callable[[StreamExecutionEnvironment], Any], parallelism: int, seed: int | None) -> list[Any]:
    """Return the rows of the program's streams, with watermarks all along the way, as over rows that come slowly. With
    a seed, the job is lost and restored three times, from aligned and unaligned checkpoints."""
    options = {
        "parallelism.default": parallelism,
        "pipeline.auto-watermark-interval": "1 ms",
        "penstock.network.window-bytes": "6 kb",
        "penstock.network.output-queue-bytes": "6 kb",
        "penstock.parking.enabled": "false",
    }
    configuration, random = Configuration(options), Random(seed)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    made = streams(env)
    for stream in made if isinstance(made, tuple) else (made,):
        stream.sink_to(CommittedRows())
    graph = env.get_job_graph("job")
    job, rows = SmallJob(graph, configuration), []
    for attempt in range(1, 4 if seed is not None else 1):
        turn(job, random.randrange(5, 60))
        done = checkpointed(job, attempt, random.choice([None, 0, 1]))
        rows += done.committed
        job.close()
        job = SmallJob(graph, configuration, store=job.store, restored=done.metadata, generation=Generation(1, attempt))
    while not job.all_at_end:
        turn(job, 1)
    job.rest()
    rows += checkpointed(job, 9, None).committed
    job.close()
    return rows


def turn(job: SmallJob, turns: int) -> None:
    for _ in range(turns):
        job.run(turns=1)
        job.clock.now_ms += 1


def checkpointed(job: SmallJob, checkpoint_id: int, alignment_timeout_ms: int | None) -> Completed:
    job.trigger(checkpoint_id, alignment_timeout_ms)
    for _ in range(5_000):
        turn(job, 1)
        if job.is_acknowledged(checkpoint_id):
            return job.complete(checkpoint_id)
    raise AssertionError(f"checkpoint {checkpoint_id} is stuck")


HOW = pytest.mark.parametrize("parallelism, seed", [(1, None), (2, None), (1, 1), (2, 2), (2, 3), (3, 4)])


@HOW
def test_clicks_per_minute(parallelism: int, seed: int | None) -> None:
    example = program("clicks_per_minute")
    clicks = 12_000
    rows = rows_of(lambda env: example.counts_and_late_clicks(env, clicks), parallelism, seed)
    late = [tuple(row) for row in rows if len(row) == 2]
    made = [example.click(index) for index in range(clicks)]
    in_time = Counter((page, at - at % 60_000) for page, at in made) - Counter(
        (page, at - at % 60_000) for page, at in late
    )
    assert {(page, start): count for page, start, count in (r for r in rows if len(r) == 3)} == dict(in_time)
    assert late and not Counter(late) - Counter(made)


@HOW
def test_orders_in_euros(parallelism: int, seed: int | None) -> None:
    example = program("orders_in_euros")
    orders = 1_000
    rates = [example.rate(index) for index in range(orders // 20 + 4)]
    expected = []
    for number, currency, amount, at in (example.order(index) for index in range(orders)):
        euros = max((r for r in rates if r[0] == currency and r[2] <= at), key=lambda r: r[2])[1]
        expected.append((number, currency, round(amount * euros, 2)))
    assert sorted(rows_of(lambda env: example.converted_orders(env, orders), parallelism, seed)) == expected


@HOW
def test_silent_sensors(parallelism: int, seed: int | None) -> None:
    example = program("silent_sensors")
    readings = 6_000
    heard: dict[int, list[int]] = {}
    for sensor, at, _ in (example.reading(index) for index in range(readings)):
        heard.setdefault(sensor, []).append(at)
    expected = []
    for sensor, times in heard.items():
        for before, after in zip(times, [*times[1:], None]):
            if after is None or after - before > example.SILENCE_MS:
                expected.append((sensor, before))
                expected += [] if after is None else [(sensor, after - before)]
    assert len(expected) > example.SENSORS, "no sensor was silent before the end"
    assert sorted(rows_of(lambda env: example.alerts_and_returns(env, readings), parallelism, seed)) == sorted(expected)


@functools.cache
def expected_traffic(requests: int) -> dict[tuple[str, int], list[int]]:
    expected: dict[tuple[str, int], list[int]] = {}
    for row in program("traffic_by_service").requests(0, requests).to_pylist():
        found = expected.setdefault((row["service"], row["at"] - row["at"] % 200), [0, 0, 0, 0])
        found[0] += 1
        found[1] += row["status"] >= 500
        found[2] += row["sent_bytes"]
        found[3] = max(found[3], row["sent_bytes"])
    return expected


@HOW
def test_traffic_by_service(parallelism: int, seed: int | None) -> None:
    example = program("traffic_by_service")
    requests = 100_000
    expected = expected_traffic(requests)
    rows = rows_of(lambda env: example.traffic(env, requests, Duration.of_millis(200)), parallelism, seed)
    assert {(r.service, r.window_start): [r.requests, r.failed, r.sent_bytes, r.largest] for r in rows} == expected
    assert len(rows) == len(expected)
