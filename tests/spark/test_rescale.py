"""A job that crashed under backpressure goes on at another parallelism, with what was in flight: exactly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from tests.spark.small_jobs import KEPT, checkpoints, committed, environment, failure, file_sink, numbers, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
ROWS = 2400
UNALIGNED = {
    "execution_checkpointing_unaligned_enabled": "true",
    "execution_checkpointing_aligned__checkpoint__timeout": "0 ms",
    "restart__strategy_type": "none",
}


def counting(
    env: StreamExecutionEnvironment, out: Path, crash: Path, pause_s: float = 0.0
) -> StreamExecutionEnvironment:
    """The n-th line of key k is `k:n`, so a row that is lost or counts twice shows. A sum takes `pause_s`, and fails
    once there is a file `crash`."""

    def slowly(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        time.sleep(pause_s)
        if crash.exists():
            raise RuntimeError("crashed as it was told to")
        return (a[0], a[1] + b[1])

    keyed = numbers(env, ROWS).rebalance().map(lambda i: (i % 13, 1), PAIR).key_by(lambda p: p[0], Types.LONG())
    counted = keyed.reduce(slowly)
    counted.rebalance().map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(file_sink(out))
    return env


@pytest.mark.parametrize(("before", "after"), [(2, 3), (4, 1)])
def test_crashed_under_backpressure_and_resumed_at_another_parallelism(tmp_path: Path, before: int, after: int) -> None:
    root, out, crash = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "crash"
    env = counting(environment(before, **checkpoints(root), **KEPT, **UNALIGNED), out, crash, pause_s=0.004)
    client = env.execute_async("counting")
    wait_until(lambda: client.report().completed >= 4, "checkpoints under backpressure")
    crash.touch()
    assert "crashed as it was told to" in failure(lambda: client.wait(timeout_ms=60_000))
    crash.unlink()
    job = root / str(client.get_job_id())
    newest = max((p.parent.name for p in job.glob("chk-*/_metadata")), key=lambda name: int(name[4:]))
    assert edges_in_flight(read_metadata(open_store(str(job)), f"{newest}/_metadata")), "rows were in flight"
    options = {"execution_state__recovery_path": str(job), **checkpoints(root), **UNALIGNED}
    client = counting(environment(after, **options), out, crash).execute_async("counting")
    client.wait(timeout_ms=60_000)
    drained = client.report().draining
    assert drained is not None and drained.is_over and drained.layers_read == drained.layers > 0
    assert committed(out) == {f"{key}:{n}": 1 for key in range(13) for n in range(1, len(range(key, ROWS, 13)) + 1)}
