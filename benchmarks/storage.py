"""Checkpoints under pressure in an object store against the local directory: how much longer they take.

    storage.py [seconds=30] [rounds=2] [puts=200] [any.option=...]

Starts SeaweedFS, a real server of S3, on the loopback interface (fetched the first time). `rounds` times, by turns:
the workload of pressure.py with unaligned checkpoints, in a local directory, and in the bucket. `put_ms_p50` is what
one put of half as many bytes as such a checkpoint has (there are two slots) takes, from this process, with no job.
`longer_in_puts` is how many such puts a checkpoint in the bucket takes longer, from its trigger to its last
acknowledgement, by the medians of both. Prints one line of JSON last.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from obstore.store import S3Store

from measuring import Arguments, parse_arguments, print_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tools are not installed
from tools.object_stores import SeaweedFS

HERE = Path(__file__).resolve().parent
DEFAULTS = {"seconds": "30", "rounds": "2", "puts": "200"}
BUCKET = "penstock"
SLOTS = 2
END_LIMIT_S = 300


def pressure(seconds: float, options: dict[str, str]) -> dict[str, Any]:
    """Run pressure.py in a process of its own. Exits with its words if it fails."""
    arguments = [f"{key}={value}" for key, value in options.items()]
    command = [sys.executable, str(HERE / "pressure.py"), f"seconds={seconds:g}", f"parallelism={SLOTS}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + END_LIMIT_S, check=False)
    if done.returncode:
        sys.exit(f"pressure.py has failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def put_times_ms(options: dict[str, str], size_bytes: int, puts: int) -> list[float]:
    store = S3Store(
        BUCKET,
        endpoint=options["s3.endpoint"],
        access_key_id=options["s3.access-key"],
        secret_access_key=options["s3.secret-key"],
        client_options={"allow_http": True},
    )
    data, taken = os.urandom(size_bytes), []
    for number in range(puts):
        began = time.perf_counter()
        store.put(f"puts/{number}", data, mode="create")
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def measure(args: Arguments) -> dict[str, Any]:
    seconds = args.number("seconds")
    common = {"execution.checkpointing.unaligned.enabled": "true", **args.options}
    found: dict[str, list[dict[str, Any]]] = {"local": [], "bucket": []}
    with tempfile.TemporaryDirectory(prefix="penstock-storage-") as folder, SeaweedFS(Path(folder)) as server:
        server.make_bucket(BUCKET)
        remote = {"execution.checkpointing.dir": f"{server.uri(BUCKET)}/checkpoints", **server.options}
        for number in range(args.whole("rounds")):
            for where, options in sorted({"local": {}, "bucket": remote}.items(), reverse=number % 2 == 0):
                found[where].append(pressure(seconds, {**common, **options}))
        size_bytes = round(statistics.median(r["size_bytes_p50"] for r in found["bucket"])) // SLOTS
        puts_ms = put_times_ms(server.options, size_bytes, args.whole("puts"))
    local_ms, bucket_ms = (statistics.median(r["duration_ms_p50"] for r in found[w]) for w in ("local", "bucket"))
    put_ms = statistics.median(puts_ms)
    return {
        "peer": "penstock",
        "workload": "pressure in a bucket",
        "options": args.options,
        "seconds": seconds,
        "checkpoints": [r["completed"] for r in found["bucket"]],
        "failed": sum(r["failed"] for r in found["bucket"]),
        "restarts": sum(r["restarts"] for r in found["bucket"]),
        "object_bytes": size_bytes,
        "put_ms_p50": round(put_ms, 3),
        "local_ms_p50": local_ms,
        "bucket_ms_p50": bucket_ms,
        "longer_in_puts": round((bucket_ms - local_ms) / put_ms, 2),
        "objects_written_max": max(r["objects_written_max"] for r in found["bucket"]),
        "publication_ms_p50": statistics.median(r["publication_ms_p50"] for r in found["bucket"]),
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
