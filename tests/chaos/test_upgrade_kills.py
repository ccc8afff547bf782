"""Changes a program between two savepoints on a real Spark while slots are killed: every row counts once, and what an
operator that stays has counted is carried over.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.common.job_execution import SavepointFailed
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, ValueStateDescriptor
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from tests.chaos.test_kills import kill_slots
from tests.spark.small_jobs import (
    checkpoints,
    committed,
    environment,
    failure,
    file_sink,
    numbers,
    restarts,
    wait_until,
)
from tests.spark.test_savepoints import UNALIGNED, WAIT_S, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS, KEYS = 24_000, 13
KILLS = 2
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
SMALL = {
    # An aligned savepoint waits for what is in flight: a few hundred rows before each subtask.
    "penstock_network_bound__bytes__min": "2 kb",
    "penstock_network_window__bytes": "8 kb",
    "penstock_network_output__queue__bytes": "8 kb",
}
DEBLOATED = {
    "taskmanager_network_memory_buffer__debloat_enabled": "true",
    "taskmanager_network_memory_buffer__debloat_target": "200 ms",
    "taskmanager_network_memory_buffer__debloat_period": "50 ms",
    "taskmanager_network_memory_buffer__debloat_samples": "4",
    "taskmanager_network_memory_buffer__debloat_threshold__percentages": "25",
}


class CountPerKey(KeyedProcessFunction):
    """Counts the rows of each key, and is slow as long as the file `hurries` is missing."""

    def __init__(self, hurries: Path, pause_s: float = 0.0) -> None:
        self.hurries, self.pause_s = hurries, pause_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, ...], ctx: Any) -> Iterator[tuple[int, ...]]:
        if self.pause_s and not self.hurries.exists():
            time.sleep(self.pause_s)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


def text(row: tuple[int, ...]) -> str:
    return ":".join(map(str, row))


def build(env: StreamExecutionEnvironment, out: Path, is_changed: bool) -> StreamExecutionEnvironment:
    """Declare a job whose lines are `<key>:<whether the inserted map has seen the row>:<n-th row of the key>:<as the
    last keyed operator counts>`. What `is_changed` inserts and removes are neighbours of the operator that stays, and
    two chains are broken."""
    hurries = out.with_name("hurries")
    rows = numbers(env, ROWS).uid("numbers").rebalance()
    parsed = rows.map(lambda i: (i % KEYS, 0), PAIR).name("parse").uid("parse")
    if is_changed:
        parsed = parsed.map(lambda p: (p[0], 1), PAIR).name("mark").uid("mark").disable_chaining()
    counted = parsed.key_by(lambda p: p[0], Types.LONG()).process(CountPerKey(hurries, 0.003), TRIPLE)
    counted = counted.name("counts").uid("counts")
    again = "fresh" if is_changed else "forgotten"
    both = counted.key_by(lambda p: p[0], Types.LONG()).process(CountPerKey(hurries)).name(again).uid(again)
    lines = both.map(text, Types.STRING()).name("lines").uid("lines")
    if is_changed:
        lines = lines.start_new_chain()
    lines.sink_to(file_sink(out)).name("files").uid("files")
    return env


def kill_one(client: Any, what: str) -> None:
    """Kill a slot of the running job, and wait until the job has restarted and completed a checkpoint since."""
    wait_until(lambda: client.report().state == "RUNNING" and all(client.report().slot_pids), f"running {what}")
    restarted = client.report().restarts
    os.kill(client.report().slot_pids[0], signal.SIGKILL)
    wait_until(lambda: client.report().restarts > restarted, f"the restart {what}")
    go_on(client, drained=False)


def go_on(client: Any, drained: bool = True) -> None:
    """Wait until the job runs, and has completed a checkpoint since. `drained`: and has read the rows in flight that
    it was restored with, which hold back an aligned savepoint."""
    seen = client.report().completed

    def is_done() -> bool:
        report = client.report()
        is_held = drained and report.draining is not None and not report.draining.is_over
        return report.state == "RUNNING" and all(report.slot_pids) and not is_held and report.completed > seen

    wait_until(is_done, "the job goes on")


def stop_aligned(client: Any, savepoints: Path) -> str:
    """Stop the job; once more if it restarts just then."""
    for _ in range(5):
        go_on(client)
        try:
            return str(client.stop_with_savepoint(savepoint_directory=str(savepoints), aligned=True).result(WAIT_S))
        except SavepointFailed:
            continue
    raise AssertionError("the job could not be stopped")


def per_key(lines: Counter[str]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the other numbers of all lines by key, in the order of the rows."""
    found: dict[int, list[tuple[int, int, int]]] = {key: [] for key in range(KEYS)}
    for line in lines.elements():
        key, *others = map(int, line.split(":"))
        found[key].append((others[1], others[0], others[2]))
    return {key: sorted(values) for key, values in found.items()}


@pytest.mark.parametrize("network", [{}, DEBLOATED], ids=["", "debloated"])
def test_a_program_is_changed_between_two_savepoints_while_slots_are_killed(
    network: dict[str, str], tmp_path: Path, spark_session: object
) -> None:
    out, chance = tmp_path / "out", random.Random(11)
    more = {**UNALIGNED, **SMALL, **restarts(1000), **network}
    options = {**checkpoints(tmp_path / "checkpoints"), **more}
    client = build(environment(2, **options), out, False).execute_async("before")
    seen = kill_slots(client, chance, KILLS)
    assert len(seen) == KILLS and not client.get_job_execution_result().done()
    assert any(c.inflight_bytes for report in seen for c in report.checkpoints), "the job is under pressure"
    savepoint = stop_aligned(client, tmp_path / "savepoints")
    assert client.report().restarts >= 1
    metadata = read_metadata(open_store(savepoint), "_metadata")
    assert not edges_in_flight(metadata), "an aligned savepoint holds no rows of edges that go"
    before = {key: len(values) for key, values in per_key(committed(out)).items()}
    expected = Counter(f"{key}:0:{n}:{n}" for key in before for n in range(1, before[key] + 1))
    assert committed(out) == expected and 0 < expected.total() < ROWS

    options = {**checkpoints(tmp_path / "new"), **more, "execution_state__recovery_path": savepoint}
    told = failure(lambda: build(environment(2, **options), out, True).execute_async("refused"))
    assert "no operator 'forgotten'" in told and "execution.state-recovery.ignore-unclaimed-state=true" in told
    assert committed(out) == expected, "a start that is refused changes nothing"

    options["execution_state__recovery_ignore__unclaimed__state"] = "true"
    client = build(environment(2, **options), out, True).execute_async("after")
    assert len(kill_slots(client, chance, KILLS)) == KILLS
    go_on(client, drained=False)
    client.rescale({"counts": 3}).result(WAIT_S)
    kill_one(client, "behind the rescale")
    shown = {v.name: v.parallelism for v in client.report().vertices}
    assert shown["counts"] == 3 and {shown[name] for name in shown if name != "counts"} == {2}
    assert {"parse", "mark", "fresh"} <= set(shown), "two chains are broken"
    finish(client, out)
    assert client.report().restarts >= 2
    for key, done in before.items():
        count = len(range(key, ROWS, KEYS))
        expected += Counter(f"{key}:1:{n}:{n - done}" for n in range(done + 1, count + 1))
    assert committed(out) == expected
