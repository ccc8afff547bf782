"""Columnar keyed state: how large it is, and how long a snapshot of it stops the stream.

    state.py [keys=10000000] [seconds=60] [interval_s=1] [any.option=...]

One slot sums and counts per key (two values of 8 bytes, a key of 8). At first there are few keys, until the process has
the size that it needs by itself; then all keys come in once, then again and again, in an order that is spread over the
whole table, as fast as they are taken. `rss_bytes_per_key` is what the slot's process has grown by from the few keys to
all of them, before any checkpoint. Then a checkpoint is triggered every `interval_s`, and
`stop_ms` is, for each, the longest time between two batches at the sink while it was under way, less the median of
such times. `sync_ms` is the longest time of each for which a subtask stood still. `quiet_ms` is as `stop_ms`, of as
many and as long times without a checkpoint: what the machine does by itself. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measuring import (
    END_LIMIT_MS,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    quantile,
    rss_bytes,
    scattered,
    wait_until,
)
from penstock.common import WatermarkStrategy
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.columnar import count, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from sinks import Longs, RecordingSink, recorded
from throughput import NAMED

DEFAULTS = {"keys": "10000000", "seconds": "60", "interval_s": "1"}
FEW_KEYS = 1000
FEW_KEYS_ROUNDS = 4
"""So many rows as there are keys, this many times: seconds, in which the slot tells its counts more than once."""
FILL_LIMIT_S = 600.0
CHECKPOINT_LIMIT_S = 120.0

Span = tuple[int, int]
"""From and to, wall-clock ns."""


@dataclass(frozen=True)
class Fill:
    """(key, 1, index / 1000 ms): rows of few keys, then all keys in turns."""

    keys: int

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        indices = np.arange(first, first + count, dtype=np.int64)
        keys = np.where(indices < FEW_KEYS_ROUNDS * self.keys, indices % FEW_KEYS, scattered(indices, self.keys))
        columns = [keys, np.ones(count, np.int64), indices // 1000]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=NAMED.schema)


def wall_clock(batch: pa.RecordBatch) -> list[int]:
    return [time.time_ns()]


def declare(env: StreamExecutionEnvironment, keys: int, records: Path) -> None:
    source = BatchGeneratorSource(Fill(keys), type_info=NAMED)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        .key_by("key")
        .aggregate(total=sum_("value"), rows=count())
        .sink_to(RecordingSink(records, wall_clock))
    )


def rows_of(client: JobClient) -> int:
    """Return the rows that the aggregate has taken, as the slot last reported."""
    return int(client.report().vertices[-1].rows_in)


def checkpoint(client: JobClient) -> tuple[Span, float]:
    """Measure a checkpoint from the trigger to the last acknowledgement, when the snapshot is durable, and how long a
    subtask stood still for it, in ms.
    """
    before = client.report()
    known = {c.checkpoint_id for c in before.checkpoints}
    client.trigger_checkpoint()
    report = wait_until("checkpoint", client, lambda r: r.completed > before.completed, CHECKPOINT_LIMIT_S)
    (done,) = [c for c in report.checkpoints if c.checkpoint_id not in known and c.status == "completed"]
    start_ns = done.trigger_wall_ms * 1_000_000
    assert done.duration_ms is not None
    return (start_ns, start_ns + int(done.duration_ms * 1e6)), done.sync_ms_max


def longest_gaps(writes: Longs, spans: Sequence[Span]) -> list[float]:
    """Milliseconds: of each span the longest time between two writes, less the median of all such times."""
    gaps = np.diff(writes)
    usual_ns = float(np.median(gaps))
    longest = []
    for start, end in spans:
        # Gap i lies between writes i and i + 1; those at both borders belong to the span.
        first, last = np.searchsorted(writes, [start, end])
        within = gaps[max(first - 1, 0) : last]
        if len(within):
            longest.append((float(within.max()) - usual_ns) / 1e6)
    return longest


def spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_ms_{called}": quantile(values, share) for called, share in shares.items()}


def measure(args: Arguments) -> dict[str, Any]:
    keys = args.whole("keys")
    home = Path(tempfile.mkdtemp(prefix="penstock-state-"))
    records = home / "records"
    records.mkdir()
    defaults = {
        "parallelism.default": "1",
        # Checkpoints are on, and come when they are asked for.
        "execution.checkpointing.interval": "10 h",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
    }
    spark = open_session("penstock benchmark", 1).context
    spans: list[Span] = []
    syncs: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, keys, records)
        client = env.execute_async("state")
        wait_until("first rows", client, lambda r: r.state == "RUNNING" and rows_of(client) > 0.3 * keys, FILL_LIMIT_S)
        (slot,) = client.report().slot_pids
        empty_bytes, rows_then = rss_bytes(slot), rows_of(client)
        if rows_then >= FEW_KEYS_ROUNDS * keys:
            client.cancel().result(END_LIMIT_MS / 1000)
            sys.exit(f"keys={keys} are too few: they were all there before the memory without them could be read")
        wait_until("all keys", client, lambda r: rows_of(client) > (FEW_KEYS_ROUNDS + 1.2) * keys, FILL_LIMIT_S)
        full_bytes = rss_bytes(slot)
        deadline = time.monotonic() + args.number("seconds")
        while time.monotonic() < deadline:
            time.sleep(args.number("interval_s"))
            span, sync_ms = checkpoint(client)
            spans.append(span)
            syncs.append(sync_ms)
        end_bytes = rss_bytes(slot)
        report = client.report()
        client.cancel().result(END_LIMIT_MS / 1000)
        (writes,) = recorded(records)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    # As long as a checkpoint, in the middle of the pause before it, but not within the one before.
    ended = [0, *(end for _, end in spans)]
    quiet = [
        (max(before, start - (end - start) - int(5e7)), start - int(5e7)) for before, (start, end) in zip(ended, spans)
    ]
    return {
        "peer": "penstock",
        "workload": "state",
        "options": args.options,
        "keys": keys,
        "rss_bytes_per_key": per_key(empty_bytes, full_bytes, keys),
        "rss_bytes_per_key_after_snapshots": per_key(empty_bytes, end_bytes, keys),
        "checkpoints": len(spans),
        "state_bytes": report.checkpoints[-1].state_bytes,
        "checkpoint_ms_p50": quantile([(end - start) / 1e6 for start, end in spans], 0.5),
        **spread("stop", longest_gaps(writes, spans)),
        **spread("sync", syncs),
        **spread("quiet", longest_gaps(writes, quiet)),
        "restarts": report.restarts,
    }


def per_key(before: int | None, after: int | None, keys: int) -> float | None:
    return None if before is None or after is None else round((after - before) / keys, 1)


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
