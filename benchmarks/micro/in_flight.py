"""Measures the data in flight in front of a slow operator, by the number of slots. Simulated: the real runtime runs
over a clock and a network of the simulation, in one thread.

    micro/in_flight.py [slots=2,8,32,64,200] [cost_ms=2] [row_bytes=100] [ms=2000] [samples=20] [chart=FILE]

A source that is as fast as it can be feeds a keyed map in which a row takes `cost_ms`, both in each of the slots; so
each of the slots squared channels has rows waiting. In-flight data of a subtask is all that its producers have emitted
for it and it has not applied: in the producers' queues, on the wire, and at its gate. It is counted as credit is: a
batch has 512 bytes more than its rows. Figures are means over the subtasks and over `samples` moments of the second
half of the `ms`.

Prints one line of JSON last: `in_flight_bytes_<slots>`, `in_flight_ratio` (the largest number of slots against the
smallest), and the same of the part at the gate and on the wire (`granted_*`), which credit bounds. `chart`: draws the
figures as SVG.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.limits import Limits
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import MapFunction
from penstock.protocol.channel.ends import InputChannel, OutputChannel
from penstock.runtime.subtask.subtask_runner import SubtaskRunner
from simulation.cluster.cluster import Cluster
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.simulated_functions import Busy
from simulation.jobs.workload import WorkloadBuilder
from simulation.plans.drawn_settings import BASE_OPTIONS
from simulation.world import world_hooks
from simulation.world.pace import Bounds, Pace
from simulation.world.world import World

DEFAULTS = {"slots": "2,8,32,64,200", "cost_ms": "2", "row_bytes": "100", "ms": "2000", "samples": "20", "chart": ""}
KEYS_PER_SLOT = 64
EVERLASTING = 10**12


class Widened(MapFunction):
    """Makes rows of so many bytes of numbers."""

    def __init__(self, row_bytes: int) -> None:
        self._text = "x" * row_bytes

    def map(self, value: Any) -> Any:
        return (value, self._text)


class Slow(Busy, MapFunction):
    """Takes its time."""

    def map(self, value: Any) -> Any:
        self.work()
        return None


def cluster_of(slots: int, cost_ms: float, row_bytes: int) -> Cluster:
    configuration = Configuration(BASE_OPTIONS | {"pipeline.max-parallelism": 1024, "heartbeat.timeout": "10 min"})
    job = WorkloadBuilder(Random(0), configuration)
    environment = job.environment
    environment.set_parallelism(slots)
    rows = environment.from_source(
        NumberSequenceSource(0, EVERLASTING), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(Widened(row_bytes), Types.TUPLE([Types.LONG(), Types.STRING()]))
    keys = KEYS_PER_SLOT * slots
    slow = rows.key_by(lambda row: row[0] % keys, Types.LONG()).map(Slow(cost_ms), Types.LONG())
    slow.sink_to(DiscardingSink())
    world = World(0)
    world.is_parallel = True
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2, work_ms=0.5, slot_start_ms=5.0, scale=Limits())
    return Cluster(world, job.build(), FaultPlan(), pace, Bounds())


def subtasks_of(cluster: Cluster) -> list[SubtaskRunner]:
    processes = (p for driver in cluster.drivers for p in driver.keeper.processes)
    deployments = (process.runtime._deployment for process in processes)
    return [runner for deployment in deployments if deployment is not None for runner in deployment._by_vertex.values()]


def channels_of(cluster: Cluster) -> Iterator[tuple[OutputChannel, InputChannel]]:
    """Yield both ends of each channel that has producers."""
    inputs, outputs = {}, {}
    for runner in subtasks_of(cluster):
        inputs.update({c.id: c for c in runner.deployed.gate.channels})
        outputs.update({c.id: c for p in runner.deployed.partitions for c in p.channels})
    assert inputs.keys() == outputs.keys() and inputs, "the job is not running"
    return ((outputs[channel], inputs[channel]) for channel in inputs)


def rows_applied(cluster: Cluster) -> int:
    return sum(i.applied for _, i in channels_of(cluster))


def measure(slots: int, cost_ms: float, row_bytes: int, run_ms: float, samples: int) -> tuple[float, float, float]:
    """Return the bytes in flight per slow subtask, those of them that have left the producer, and the share
    of the time in which they had rows."""
    cluster = cluster_of(slots, cost_ms, row_bytes)
    world = cluster.world
    world_hooks.enter(cluster.hooks)
    found: list[tuple[float, float]] = []
    try:
        driver = cluster.start_driver()
        while not driver.host.has_begun or driver.host.master.report.state != "RUNNING":
            assert world.step() and not world.violations, world.violations
        began_ms = world.now_ms
        rows_before = 0
        for sample in range(samples):
            until_ms = began_ms + run_ms * (0.5 + 0.5 * (sample + 1) / samples)
            while world.now_ms < until_ms:
                assert world.step() and not world.violations, world.violations
            ends = list(channels_of(cluster))
            sent = sum(o.sent_bytes - i.applied_bytes for o, i in ends)
            found.append((sum(o.queued_bytes for o, _ in ends) + sent, sent))
            if not sample:
                rows_before, counted_from_ms = rows_applied(cluster), world.now_ms
        rows = rows_applied(cluster) - rows_before
        busy = rows / slots * cost_ms / (world.now_ms - counted_from_ms)
    finally:
        world_hooks.enter(None)
    in_flight, granted = (sum(figures) / samples / slots for figures in zip(*found, strict=True))
    return in_flight, granted, busy


def chart_of(figures: Sequence[tuple[int, float, float]]) -> str:
    """Draw (slots, bytes in flight, bytes granted) as SVG: slots on a logarithmic axis, bytes from 0."""
    width, height, left, top, bottom = 720, 360, 70, 40, 50
    bytes_max = 20_000 * math.ceil(max(figure[1] for figure in figures) / 20_000)
    first, last = math.log2(figures[0][0]), math.log2(figures[-1][0])

    def x(slots: int) -> float:
        return round(left + (math.log2(slots) - first) / (last - first) * (width - left - 30), 1)

    def y(size_bytes: float) -> float:
        return round(height - bottom - size_bytes / bytes_max * (height - top - bottom), 1)

    def line(column: int, color: str) -> str:
        points = " ".join(f"{x(figure[0])},{y(figure[column])}" for figure in figures)
        dots = "".join(f'<circle cx="{x(f[0])}" cy="{y(f[column])}" r="3" fill="{color}"/>' for f in figures)
        return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>{dots}'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14">In flight before a slow operator, per subtask (KB), by slots</text>',
    ]
    for step in range(5):
        size_bytes = bytes_max * step / 4
        parts.append(
            f'<line x1="{left}" x2="{width - 30}" y1="{y(size_bytes)}" y2="{y(size_bytes)}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{y(size_bytes) + 4}" text-anchor="end">{size_bytes / 1000:g}</text>'
        )
    for slots, _, _ in figures:
        parts.append(f'<text x="{x(slots)}" y="{height - bottom + 18}" text-anchor="middle">{slots}</text>')
        label = f"{slots * slots:,}"
        parts.append(f'<text x="{x(slots)}" y="{height - bottom + 34}" text-anchor="middle" fill="#777">{label}</text>')
    parts.append(f'<text x="8" y="{height - bottom + 18}">slots</text>')
    parts.append(f'<text x="8" y="{height - bottom + 34}" fill="#777">channels</text>')
    parts += [line(1, "#1f6feb"), line(2, "#d9730d")]
    parts.append(f'<text x="{left + 10}" y="{top + 12}" fill="#1f6feb">all in flight, output queues included</text>')
    parts.append(f'<text x="{left + 10}" y="{top + 28}" fill="#d9730d">granted: on the wire and at the gate</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    values = dict(DEFAULTS)
    for argument in sys.argv[1:]:
        name, equals, value = argument.partition("=")
        if not equals or name not in values:
            sys.exit(f"cannot read {argument!r}: arguments are {' '.join(f'{k}={v}' for k, v in DEFAULTS.items())}")
        values[name] = value
    slots = [int(number) for number in values["slots"].split(",")]
    result: dict[str, float] = {}
    for count in slots:
        in_flight, granted, busy = measure(
            count, float(values["cost_ms"]), int(values["row_bytes"]), float(values["ms"]), int(values["samples"])
        )
        result[f"in_flight_bytes_{count}"] = round(in_flight)
        result[f"granted_bytes_{count}"] = round(granted)
        print(f"{count} slots: {in_flight:,.0f} bytes per subtask, {granted:,.0f} granted; {busy:.3f} busy", flush=True)
    if values["chart"]:
        figures = [(n, result[f"in_flight_bytes_{n}"], result[f"granted_bytes_{n}"]) for n in slots]
        Path(values["chart"]).write_text(chart_of(figures), encoding="utf-8")
    for figure in ("in_flight", "granted"):
        largest, smallest = (result[f"{figure}_bytes_{count}"] for count in (max(slots), min(slots)))
        result[f"{figure}_ratio"] = round(largest / smallest, 3)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
