"""The programs in examples/, each held against the same question answered in plain Python over its own rows."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest

from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from tests.unit.runtime.small_job import CommittedRows, SmallJob

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(streams: Callable[[StreamExecutionEnvironment], Any], parallelism: int) -> list[Any]:
    """Of the program's streams, with watermarks all along the way, as over rows that come slowly."""
    options = {
        "parallelism.default": parallelism,
        "pipeline.auto-watermark-interval": "1 ms",
        "penstock.network.window-bytes": "6 kb",
        "penstock.network.output-queue-bytes": "6 kb",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(options))
    made = streams(env)
    for stream in made if isinstance(made, tuple) else (made,):
        stream.sink_to(CommittedRows())
    job = SmallJob(env.get_job_graph("job"), Configuration(options))
    while not job.all_at_end:
        job.run(turns=1)
        job.clock.now_ms += 1
    job.rest()
    assert job.all_at_end
    job.trigger(1, None)
    job.run()
    rows = job.complete(1).committed
    job.close()
    return rows


@pytest.mark.parametrize("parallelism", [1, 2])
def test_clicks_per_minute(parallelism):
    example = program("clicks_per_minute")
    clicks = 12_000
    rows = rows_of(lambda env: example.counts_and_late_clicks(env, clicks), parallelism)
    late = [tuple(row) for row in rows if len(row) == 2]
    made = [example.click(index) for index in range(clicks)]
    in_time = Counter((page, at - at % 60_000) for page, at in made) - Counter(
        (page, at - at % 60_000) for page, at in late
    )
    assert {(page, start): count for page, start, count in (r for r in rows if len(r) == 3)} == dict(in_time)
    assert late and not Counter(late) - Counter(made)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_orders_in_euros(parallelism):
    example = program("orders_in_euros")
    orders = 1_000
    rates = [example.rate(index) for index in range(orders // 20 + 4)]
    expected = []
    for number, currency, amount, at in (example.order(index) for index in range(orders)):
        euros = max((r for r in rates if r[0] == currency and r[2] <= at), key=lambda r: r[2])[1]
        expected.append((number, currency, round(amount * euros, 2)))
    assert sorted(rows_of(lambda env: example.converted_orders(env, orders), parallelism)) == expected


@pytest.mark.parametrize("parallelism", [1, 2])
def test_silent_sensors(parallelism):
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
    assert sorted(rows_of(lambda env: example.alerts_and_returns(env, readings), parallelism)) == sorted(expected)
