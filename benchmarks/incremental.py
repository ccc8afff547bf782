"""Incremental checkpoints of keyed state: what they write, whether they are in time, and what they cost the stream.

    incremental.py [keys=10000000] [hot=100] [seconds=60] [rounds=4] [interval_s=1] [text_keys=false] [value_bytes=0]
                   [any.option=...]

One slot sums and counts per key, as in state.py; or, with `value_bytes`, a Python function keeps a text of that length
per key in value state (5,000,000 keys with 1,000 are 5 GB). All keys come in once; from then on only one key in `hot`
changes, as fast as rows are taken. The first checkpoint stores everything. Then, `rounds` times, as long without
checkpoints as, afterwards, with one each `interval_s`, `seconds` of each in all, because the machine's speed changes
over a minute: `written_share_p50` is what such a checkpoint writes besides rows in flight, of the first one; `late`
counts those that took longer than the interval; `behind_pause_ms` is how long the longest one before them took, which
has the changes of all the time without; `throughput_ratio` is the rows that were taken per second with them, of those
without, the median of the rounds' `ratios`; `stop_ms` is as in state.py, `sync_ms` the longest time of each for which a
subtask stood still. `state.backend.type=rocksdb` is one of the options. With `text_keys=true` keys are texts of 100
bytes, as in keyed_state.py: 50,000,000 of them are 5 GB and more. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from keyed_state import NAMED as TEXTS
from keyed_state import key_texts
from measuring import (
    END_LIMIT_MS,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    quantile,
    scattered,
    wait_until,
)
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import JobClient, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.columnar import count, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.monitoring.report import CheckpointReport
from penstock.spark.session import open_session
from sinks import RecordingSink, recorded
from state import Span, longest_gaps, rows_of, spread, wall_clock
from throughput import NAMED

DEFAULTS = {
    "keys": "10000000",
    "hot": "100",
    "seconds": "60",
    "rounds": "4",
    "interval_s": "1",
    "text_keys": "false",
    "value_bytes": "0",
}
LARGE_FILL_LIMIT_S = 1500.0


@dataclass(frozen=True)
class Generate:
    """(key, 1, index / 1000 ms): all keys once, then only the first of each `hot` ones. `texts`: (text, 1)."""

    keys: int
    hot: int
    texts: bool

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        indices = np.arange(first, first + count, dtype=np.int64)
        spread_out = scattered(indices, self.keys)
        keys = np.where(indices < self.keys, spread_out, spread_out // self.hot * self.hot)
        if self.texts:
            return pa.RecordBatch.from_arrays(
                [key_texts(keys), pa.array(np.ones(count, np.int64))], schema=TEXTS.schema
            )
        columns = [keys, np.ones(count, np.int64), indices // 1000]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=NAMED.schema)


class Count(KeyedProcessFunction):
    """Keeps how many rows of a key there were, as a text of `value_bytes`."""

    def __init__(self, value_bytes: int) -> None:
        self.value_bytes = value_bytes

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        rows = int(self.kept.value() or 0) + 1
        self.kept.update(f"{rows:>{self.value_bytes}}")
        yield rows


CHECKPOINT_LIMIT_S = 900.0
"""The first one stores everything."""


def checkpoint(client: JobClient) -> CheckpointReport:
    before = client.report()
    known = {c.checkpoint_id for c in before.checkpoints}
    client.trigger_checkpoint()
    report = wait_until("checkpoint", client, lambda r: r.completed > before.completed, CHECKPOINT_LIMIT_S)
    (done,) = [c for c in report.checkpoints if c.checkpoint_id not in known and c.status == "completed"]
    return done


def duration_ms(taken: CheckpointReport) -> float:
    assert taken.duration_ms is not None
    return taken.duration_ms


def span_of(taken: CheckpointReport) -> Span:
    start_ns = taken.trigger_wall_ms * 1_000_000
    return start_ns, start_ns + int(duration_ms(taken) * 1e6)


def measure(args: Arguments) -> dict[str, Any]:
    keys, seconds, interval_s = args.whole("keys"), args.number("seconds"), args.number("interval_s")
    rounds = args.whole("rounds")
    home = Path(tempfile.mkdtemp(prefix="penstock-incremental-"))
    records = home / "records"
    records.mkdir()
    defaults = {
        "parallelism.default": "1",
        "execution.checkpointing.interval": "10 h",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
        "state.backend.rocksdb.localdir": str(home / "rocksdb"),
    }
    spark = open_session("penstock benchmark", 1).context
    taken: list[CheckpointReport] = []
    quiet_rates: list[float] = []
    behind_pause: list[float] = []
    with_rates: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        texts = args.flag("text_keys")
        source = BatchGeneratorSource(Generate(keys, args.whole("hot"), texts), type_info=TEXTS if texts else NAMED)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        keyed, value_bytes = stream.key_by("key"), args.whole("value_bytes")
        counts = (
            keyed.process(Count(value_bytes), Types.LONG())
            if value_bytes
            else keyed.aggregate(total=sum_("value"), rows=count())
        )
        counts.sink_to(RecordingSink(records, wall_clock))
        client = env.execute_async("incremental")
        running = wait_until("first rows", client, lambda r: r.state == "RUNNING", LARGE_FILL_LIMIT_S)
        wait_until("all keys", client, lambda r: rows_of(client) > 1.1 * keys, LARGE_FILL_LIMIT_S)
        first = checkpoint(client)
        for _ in range(rounds):
            quiet_rates.append(rate(client, seconds / rounds, lambda: None, interval_s))
            behind_pause.append(duration_ms(checkpoint(client)))
            with_rates.append(rate(client, seconds / rounds, lambda: taken.append(checkpoint(client)), interval_s))
        restarts = client.report().restarts - running.restarts
        client.cancel().result(END_LIMIT_MS / 1000)
        (writes,) = recorded(records)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    whole_bytes = first.written_bytes - first.inflight_bytes
    written = [(t.written_bytes - t.inflight_bytes) / max(whole_bytes, 1) for t in taken]
    ratios = [with_checkpoints / without for with_checkpoints, without in zip(with_rates, quiet_rates, strict=True)]
    return {
        "peer": "penstock",
        "workload": "incremental",
        "options": args.options,
        "keys": keys,
        "checkpoints": len(taken),
        "first_written_bytes": whole_bytes,
        "written_share_p50": quantile(written, 0.5),
        "late": sum(duration_ms(t) > interval_s * 1000 for t in taken),
        "duration_ms_p50": quantile([duration_ms(t) for t in taken], 0.5),
        "duration_ms_max": max(map(duration_ms, taken)),
        "behind_pause_ms": max(behind_pause),
        "rows_per_s_without": round(statistics.median(quiet_rates)),
        "throughput_ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        **spread("stop", longest_gaps(writes, [span_of(t) for t in taken])),
        **spread("sync", [t.sync_ms_max for t in taken]),
        "restarts": restarts,
    }


def rate(client: JobClient, seconds: float, act: Any, interval_s: float) -> float:
    """Rows per second that the aggregate takes while something is done each `interval_s`."""
    began, rows = time.monotonic(), rows_of(client)
    due = began
    while (now := time.monotonic()) < began + seconds:
        time.sleep(max(0.0, due - now))
        act()
        due += interval_s
    return (rows_of(client) - rows) / (time.monotonic() - began)


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
