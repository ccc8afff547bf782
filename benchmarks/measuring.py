"""Holds what our benchmarks share: `KEY=VALUE` arguments, a session, a job that is watched, and statistics.

They import what any user can import, and `client.report()`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext

from penstock.common import Configuration, Types
from penstock.datastream import JobClient
from penstock.monitoring.report import JobReport

START_LIMIT_S = 120.0
END_LIMIT_MS = 30_000.0
ENDED = ("FINISHED", "FAILED", "CANCELED")
POLL_S = 0.05
RSS_SAMPLE_AFTER_S = 60.0
KEYS = 10_007
PAYLOAD_CHARS = 100

PRESSURE_ROW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING()])
"""(index, key, event time in ms, payload), as in peers/flink/Pressure.java."""


@dataclass(frozen=True)
class Arguments:
    """`values` are the benchmark's own; `options` are configuration keys (those with a dot)."""

    values: dict[str, str]
    options: dict[str, str]

    def number(self, name: str) -> float:
        return float(self.values[name])

    def whole(self, name: str) -> int:
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        return self.values[name].lower() in ("true", "1", "yes")


def parse_arguments(
    arguments: Sequence[str], defaults: dict[str, str], choices: Mapping[str, Sequence[str]] | None = None
) -> Arguments:
    """Exits with a message that lists the names for one that is neither known nor an option key, and the values for
    one that is not among its `choices`."""
    values, options = dict(defaults), dict[str, str]()
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or (key not in defaults and "." not in key):
            known = " ".join(f"{k}={v}" for k, v in defaults.items())
            sys.exit(f"cannot read {argument!r}: arguments are KEY=VALUE, of {known} or any option key")
        (options if "." in key else values)[key] = value
    for key, allowed in (choices or {}).items():
        if values[key] not in allowed:
            sys.exit(f"{key}={values[key]}: it is one of {', '.join(allowed)}")
    return Arguments(values, options)


def configured(defaults: dict[str, str], options: dict[str, str]) -> Configuration:
    configuration = Configuration()
    for key, value in {**defaults, **options}.items():
        configuration.set_string(key, value)
    return configuration


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, over uint64; wraps as Java's long does."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


HEX_PAIRS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)


def payloads(indices: np.ndarray) -> pa.StringArray:
    """100 hex digits per index: the first of seven mixed words of 16."""
    words = mix(indices.astype(np.uint64)[:, None] * np.uint64(7) + np.arange(7, dtype=np.uint64))
    digits = HEX_PAIRS[words.astype(">u8").view(np.uint8)].view(np.uint8)[:, :PAYLOAD_CHARS]
    offsets = np.arange(len(indices) + 1, dtype=np.int32) * PAYLOAD_CHARS
    characters = pa.py_buffer(np.ascontiguousarray(digits))
    return pa.StringArray.from_buffers(len(indices), pa.py_buffer(offsets), characters)


def scattered(indices: np.ndarray, keys: int) -> np.ndarray:
    """A key for each index: neighbours have different ones, and all keys are equally frequent."""
    return np.mod(indices * np.int64(2654435761), keys)


def keys_of(indices: np.ndarray) -> np.ndarray:
    return scattered(indices, KEYS)


def generate_pressure(first: int, count: int) -> pa.RecordBatch:
    indices = np.arange(first, first + count, dtype=np.int64)
    columns = [pa.array(indices), pa.array(keys_of(indices)), pa.array(indices // 1000), payloads(indices)]
    return pa.RecordBatch.from_arrays(columns, schema=PRESSURE_ROW.schema)


def wait_until(what: str, client: JobClient, ready: Callable[[JobReport], bool], limit_s: float) -> JobReport:
    """Exits with the report's own words where the job ends or the time is over first."""
    deadline = time.monotonic() + limit_s
    while True:
        report: JobReport | None = client.report()
        if report is not None and ready(report):
            return report
        if report is not None and report.state in ENDED:
            client.wait(END_LIMIT_MS)
            sys.exit(f"the job is {report.state} before {what}")
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {limit_s:g} s; the job is {report.state if report else 'not there'}")
        time.sleep(POLL_S)


def rss_bytes(pid: int | str = "self") -> int | None:
    """Resident memory of a process; None where there is no /proc."""
    try:
        resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float | None:
    """Return how long a process has computed, all threads together; None where there is no /proc."""
    try:
        # The name, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def jvm_rss_bytes(spark: SparkContext) -> int | None:
    process = getattr(spark._gateway, "proc", None)
    return rss_bytes(process.pid) if process else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return a quantile as the peer takes it: the median, else the value at that share of the sorted list."""
    if not values:
        return None
    if share == 0.5:
        return round(statistics.median(values), 3)
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 3)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The distribution-free interval of the median, from order statistics (Conover, Practical Nonparametric
    Statistics, 3.2). With fewer than six values there is none of 95 %: minus to plus infinity."""
    ordered, n = sorted(values), len(values)
    rank, outside = 0, 0.0
    while rank < n // 2:
        outside += math.comb(n, rank) / 2**n
        if 2 * outside > 1 - confidence:
            break
        rank += 1
    if rank == 0:
        return -math.inf, math.inf
    return ordered[rank - 1], ordered[n - rank]


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
