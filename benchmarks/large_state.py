"""State that is larger than memory is meant for, on RocksDB: how soon a job with it is back.

    large_state.py [keys=50000000] [hot=100] [store_mb_per_s=200] [kills=3] [parallelism=2] [more=3]
                   [rescales=true] [any.option=...]

A rolling sum per key of 100 bytes (50,000,000 keys make 5 GB of checkpoint), incremental checkpoints in SeaweedFS
behind a link of `store_mb_per_s`, local recovery. All keys come in once; from then on one key in `hot` changes, spread
over all of them, as fast as rows are taken. Then, in this order:

- `first_*`: a checkpoint of everything; `next_*`: one after it.
- `local_ms`: `kills` times a slot's process is killed with SIGKILL; from there to the first new row at a sink.
- `rescale_ms`: from the request for parallelism `more` to the first new row; `back_ms`: back to `parallelism`. Not with
  `rescales=false`.
- `restore_ms`: the driver is killed with SIGKILL, all local copies are gone, and a new program resumes the job: from
  the start of the job in it (the session is open) to the first new row. `loaded_s`: how long after that row the job has
  half of the speed that it reaches within two minutes, `loaded_rows_per_s`: it has few rows until its state is loaded.

`slot_rss_bytes` is what each slot's process had resident when all keys were in. Prints one line of JSON last.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from counted import RESTARTS_AT_ONCE, incarnations
from keyed_state import NAMED, key_texts
from measuring import (
    END_LIMIT_MS,
    POLL_S,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    rss_bytes,
    scattered,
    wait_until,
)
from penstock.common import WatermarkStrategy
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.monitoring.report import CheckpointReport, JobReport
from penstock.spark.session import open_session
from sinks import CountingSink, TracedSink, counted, first_after
from slow_link import SlowLink

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tools are not installed
from tools.object_stores import SeaweedFS

DEFAULTS = {
    "keys": "50000000",
    "hot": "100",
    "store_mb_per_s": "200",
    "kills": "3",
    "parallelism": "2",
    "more": "3",
    "rescales": "true",
    "home": "",
    "resumes": "false",
}
FILL_LIMIT_S = 1500.0
CHECKPOINT_LIMIT_S = 600.0
BACK_LIMIT_S = 600.0
SETTLE_S = 5.0
WINDOW_S = 2.0
WINDOWS = 60
BUCKET = "penstock"
STORE_VOLUMES = 160
"""The number of volumes, of 256 MB each: after a rescale there are two checkpoints of everything."""
JOB_ID = "000000000000000000000000001a49e0"


@dataclass(frozen=True)
class Generate:
    """(text, 1): all keys once, then only the first of each `hot` ones."""

    keys: int
    hot: int

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        indices = np.arange(first, first + count, dtype=np.int64)
        spread = scattered(indices, self.keys)
        numbers = np.where(indices < self.keys, spread, spread // self.hot * self.hot)
        return pa.RecordBatch.from_arrays([key_texts(numbers), pa.array(np.ones(count, np.int64))], schema=NAMED.schema)


# ---- the program ---------------------------------------------------------------------------------------------------


class Program:
    """One job with large state, and what is done to it."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.home = Path(args.values["home"])
        self.trace, self.counts = self.home / "trace", self.home / "counts"
        resumes = args.flag("resumes")
        local = self.home / ("local of the second" if resumes else "local")
        for folder in (self.trace, self.counts, local):
            folder.mkdir(exist_ok=True)
        defaults = {
            "parallelism.default": args.values["parallelism"],
            "pipeline.object-reuse": "true",
            "execution.checkpointing.interval": "10 h",
            "execution.checkpointing.timeout": "10 min",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.unaligned.enabled": "true",
            "execution.checkpointing.local-backup.enabled": "true",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "io.tmp.dirs": str(local),
            "state.backend.type": "rocksdb",
            **RESTARTS_AT_ONCE,
        }
        if resumes:
            defaults["execution.state-recovery.path"] = f"{args.options['execution.checkpointing.dir']}/{JOB_ID}"
        else:
            defaults["pipeline.job-id"] = JOB_ID
        open_session("penstock benchmark", args.whole("more"))
        self.known = incarnations(self.trace)
        self.started_ns = time.monotonic_ns()
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        source = BatchGeneratorSource(Generate(args.whole("keys"), args.whole("hot")), type_info=NAMED)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        stream.key_by("key").sum("value").sink_to(TracedSink(CountingSink(self.counts, "sum_value"), self.trace))
        self.client: JobClient = env.execute_async("large state")

    def back_ms(self, since_ns: int) -> float:
        """Wait for the first row of a new generation."""
        written = first_after("write", self.trace, self.known, BACK_LIMIT_S)
        if written is None:
            sys.exit(f"nothing new at a sink within {BACK_LIMIT_S:g} s")
        self.known = incarnations(self.trace)
        return (written.monotonic_ns - since_ns) / 1e6

    def checkpoint(self) -> CheckpointReport:
        known = {c.checkpoint_id for c in self.client.report().checkpoints}

        def fresh(report: JobReport) -> list[CheckpointReport]:
            return [c for c in report.checkpoints if c.checkpoint_id not in known and c.status == "completed"]

        self.client.trigger_checkpoint()
        return fresh(wait_until("checkpoint", self.client, lambda r: bool(fresh(r)), CHECKPOINT_LIMIT_S))[-1]

    def run(self) -> dict[str, Any]:
        keys, client = self.args.whole("keys"), self.client
        began = time.monotonic()
        while counted(self.counts).rows < 1.02 * keys:
            wait_until("first rows", client, lambda r: r.state == "RUNNING", FILL_LIMIT_S)
            if time.monotonic() > began + FILL_LIMIT_S:
                sys.exit(f"only {counted(self.counts).rows} rows within {FILL_LIMIT_S:g} s")
            time.sleep(POLL_S)
        found: dict[str, Any] = {"fill_rows_per_s": round(counted(self.counts).rows / (time.monotonic() - began))}
        found["slot_rss_bytes"] = [rss_bytes(pid) for pid in client.report().slot_pids if pid]
        tell(found)
        first = self.checkpoint()
        time.sleep(SETTLE_S)
        second = self.checkpoint()
        for name, taken in (("first", first), ("next", second)):
            found[f"{name}_written_bytes"] = taken.written_bytes - taken.inflight_bytes
            found[f"{name}_duration_ms"] = taken.duration_ms
        self.known = incarnations(self.trace)
        tell(found)
        found["local_ms"] = []
        for number in range(self.args.whole("kills")):
            time.sleep(SETTLE_S)
            pids = [pid for pid in client.report().slot_pids if pid]
            killed_ns = time.monotonic_ns()
            os.kill(pids[number % len(pids)], signal.SIGKILL)
            found["local_ms"].append(self.back_ms(killed_ns))
            tell(found)
            self.checkpoint()
        rescales = (("rescale_ms", "more"), ("back_ms", "parallelism")) if self.args.flag("rescales") else ()
        for name, parallelism in rescales:
            time.sleep(SETTLE_S)
            asked_ns = time.monotonic_ns()
            rescaled = client.rescale(self.args.whole(parallelism))
            found[name] = self.back_ms(asked_ns)
            rescaled.result(BACK_LIMIT_S)
            tell(found)
        self.checkpoint()
        time.sleep(SETTLE_S)
        self.checkpoint()
        return found

    def resume(self) -> dict[str, Any]:
        found: dict[str, Any] = {"restore_ms": self.back_ms(self.started_ns)}
        tell(found)
        rows = [counted(self.counts).rows]
        for _ in range(WINDOWS):
            time.sleep(WINDOW_S)
            rows.append(counted(self.counts).rows)
        taken = np.diff(rows)
        found["loaded_s"] = float(WINDOW_S * (1 + np.argmax(taken >= taken.max() / 2)))
        found["loaded_rows_per_s"] = round(float(taken.max()) / WINDOW_S)
        tell(found)
        self.client.cancel().result(END_LIMIT_MS / 1000)
        return found


def tell(found: dict[str, Any]) -> None:
    """Show what is known so far: the whole takes many minutes."""
    print(f"so far: {json.dumps(found)}", file=sys.stderr, flush=True)


# ---- the one that starts and kills it ------------------------------------------------------------------------------


@contextmanager
def program(args: Arguments, home: Path, options: dict[str, str], resumes: bool) -> Iterator[dict[str, Any]]:
    """Run the program, and yield what it found. It is killed at the end, if it still runs."""
    values = {**args.values, "home": str(home), "resumes": str(resumes), **options, **args.options}
    command = [sys.executable, __file__, *(f"{key}={value}" for key, value in values.items())]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        lines: Callable[[], str] = running.stdout.readline if running.stdout else str
        while (line := lines()) and not line.startswith("{"):
            pass
        if not line:
            sys.exit("the program has ended before it had found anything: see above")
        yield json.loads(line)
    finally:
        running.kill()
        running.wait()


def measure(args: Arguments) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="penstock-large-state-"))
    try:
        store = SeaweedFS(home / "store")
        store.volumes_max = STORE_VOLUMES
        with store as server:
            server.make_bucket(BUCKET)
            with SlowLink(server.port, args.number("store_mb_per_s") * 1e6) as link:
                checkpoints = f"{server.uri(BUCKET)}/checkpoints"
                options = {**server.options, "s3.endpoint": link.url, "execution.checkpointing.dir": checkpoints}
                with program(args, home, options, resumes=False) as found:
                    pass
                shutil.rmtree(home / "local")
                with program(args, home, options, resumes=True) as resumed:
                    pass
                passed_bytes = link.passed_bytes
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": "large-state",
        "options": args.options,
        "keys": args.whole("keys"),
        **found,
        **resumed,
        "local_ms_max": max(found["local_ms"], default=None),
        "passed_bytes": passed_bytes,
    }


if __name__ == "__main__":
    arguments = parse_arguments(sys.argv[1:], DEFAULTS)
    if arguments.values["home"]:
        started = Program(arguments)
        print_result(started.resume() if arguments.flag("resumes") else started.run())
        time.sleep(BACK_LIMIT_S)  # it is killed
    else:
        print_result(measure(arguments))
