"""Broadcast state and operator state on a real Spark while slots are killed: every effect once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor
from penstock.jobmaster.rescales import RESTORED
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.values.metadata import Metadata
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from penstock.storage.store import StoreError
from tests.chaos.test_kills import MODES, options
from tests.spark.small_jobs import committed, file_sink, wait_until

ROWS, RULES = 2400, 40
KILLS = 3
KNOWN = MapStateDescriptor("known", Types.LONG(), Types.LONG())
WAITING = ListStateDescriptor("waiting", Types.LONG())


class Await(KeyedBroadcastProcessFunction):
    """Rows wait for the rule of their key in the state of that key."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        if ctx.get_current_key() in ctx.get_broadcast_state(KNOWN):
            yield f"keyed {value}"
        else:
            self.waiting.add(value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[str]:
        known = ctx.get_broadcast_state(KNOWN)
        assert value not in known, f"rule {value} comes twice"
        known.put(value, value)
        released: list[int] = []

        def release(key: int, waiting: Any) -> None:
            if key == value:
                released.extend(waiting.get())
                waiting.clear()

        ctx.apply_to_keyed_state(WAITING, release)
        yield from (f"keyed {row}" for row in released)


class AwaitWithoutKeys(BroadcastProcessFunction, CheckpointedFunction):
    """Rows wait in operator state."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(WAITING)
        self.waiting = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.waiting)

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        if value % RULES in ctx.get_broadcast_state(KNOWN):
            yield f"plain {value}"
        else:
            self.waiting.append(value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[str]:
        ctx.get_broadcast_state(KNOWN).put(value, value)
        released = [row for row in self.waiting if row % RULES == value]
        self.waiting = [row for row in self.waiting if row % RULES != value]
        yield from (f"plain {row}" for row in released)


def numbers(env: StreamExecutionEnvironment, name: str, count: int, rows_per_second: float) -> Any:
    source = DataGeneratorSource(lambda i: i, count, type_info=Types.LONG(), rows_per_second=rows_per_second)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name, Types.LONG())


def test_every_effect_of_a_broadcast_happens_once_while_slots_are_killed(tmp_path: Path, spark_session: object) -> None:
    configuration = options(tmp_path)
    for key, value in MODES["unaligned"].items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    rows = numbers(env, "rows", ROWS, 400.0)
    rules = numbers(env, "rules", RULES, 8.0).set_parallelism(1).broadcast(KNOWN)
    keyed = rows.key_by(lambda value: value % RULES, Types.LONG()).connect(rules).process(Await(), Types.STRING())
    plain = rows.rebalance().connect(rules).process(AwaitWithoutKeys(), Types.STRING())
    keyed.union(plain).sink_to(file_sink(tmp_path / "output"))
    client = env.execute_async("rules")
    chance, killed = random.Random(7), 0
    ended, deadline = client.get_job_execution_result(), time.monotonic() + 120
    while killed < KILLS and not ended.done() and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 1.2))  # the schedule of the kills, not a wait for a condition
        report = client.report()
        if report is not None and report.state == "RUNNING" and report.completed and all(report.slot_pids):
            os.kill(chance.choice(report.slot_pids), signal.SIGKILL)
            killed += 1
    client.wait(timeout_ms=120_000)
    expected = {f"{kind} {value}": 1 for kind in ("keyed", "plain") for value in range(ROWS)}
    assert committed(tmp_path / "output") == expected
    assert killed == KILLS
    assert client.report().restarts >= 1


class SlowlyInOneSubtask(Await):
    """One subtask takes its time for each rule, so that others have read rules that it has not."""

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.pause_s = 0.08 if runtime_context.get_index_of_this_subtask() == 1 else 0.0

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[str]:
        time.sleep(self.pause_s)  # the cost of a rule
        yield from super().process_broadcast_element(value, ctx)


def newest_checkpoint(job: Path) -> Metadata | None:
    """The newest one whose metadata is there now; the next may delete it at any time."""
    found = sorted(job.glob("chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))
    try:
        return read_metadata(open_store(str(job)), str(found[-1].relative_to(job))) if found else None
    except StoreError:
        return None


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_receivers_that_have_read_different_rows_continue_at_another_parallelism(
    tmp_path: Path, spark_session: object, capfd: pytest.CaptureFixture[str], before: int, after: int
) -> None:
    """A slot is killed while they read the same rows, with the sources held."""
    configuration = options(tmp_path)
    for key, value in MODES["unaligned"].items():
        configuration.set_string(key, value)
    configuration.set_string("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")

    def start(parallelism: int) -> Any:
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        rows = numbers(env, "rows", ROWS // 2, 400.0).set_parallelism(1)
        rules = numbers(env, "rules", RULES, 10_000.0).set_parallelism(1).broadcast(KNOWN)
        keyed = rows.key_by(lambda value: value % RULES, Types.LONG()).connect(rules)
        keyed.process(SlowlyInOneSubtask(), Types.STRING()).sink_to(file_sink(tmp_path / "output"))
        return env.execute_async("rules at another parallelism")

    client = start(before)
    job = tmp_path / "checkpoints" / str(client.get_job_id())

    def is_uneven() -> bool:
        metadata = newest_checkpoint(job)
        return metadata is not None and bool(uneven_broadcasts(metadata))

    wait_until(is_uneven, "a checkpoint in which a subtask has read fewer rules than others")
    client.cancel()
    client.get_job_execution_result().exception(timeout=60)
    resumed_from = newest_checkpoint(job)
    assert resumed_from is not None and uneven_broadcasts(resumed_from)

    configuration.set_string("execution.state-recovery.path", str(job))
    capfd.readouterr()
    client = start(after)

    def is_first_step() -> bool:
        report = client.report()
        is_held = report.draining is not None and not report.draining.is_over
        return report.state == "RUNNING" and is_held and len(report.slot_pids) == before and all(report.slot_pids)

    wait_until(is_first_step, "the first step of the restore")
    os.kill(client.report().slot_pids[-1], signal.SIGKILL)
    client.wait(timeout_ms=120_000)
    assert committed(tmp_path / "output") == {f"keyed {value}": 1 for value in range(ROWS // 2)}
    report = client.report()
    (done,) = [rescale for rescale in report.rescales if rescale.reason == RESTORED]
    assert (max(done.before), max(done.after)) == (before, after) and report.restarts >= 1
    told = capfd.readouterr().err
    assert f"at parallelism {before} first, because some subtasks of" in told, told
    assert f"Then the job continues at parallelism {after}" in told
