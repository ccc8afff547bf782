"""Tests declared types that change between a savepoint and the job that starts from it, on a real Spark."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from tests.spark.small_jobs import (
    WAIT_S,
    checkpoints,
    committed,
    environment,
    execute,
    failure,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS, KEYS = 2000, 13
EXPECTED = Counter({f"{key}:{n}": 1 for key in range(KEYS) for n in range(1, len(range(key, ROWS, KEYS)) + 1)})
BEFORE = Types.ROW_NAMED(["n", "spare"], [Types.INT(), Types.STRING()])
AFTER = Types.ROW_NAMED(["added", "n"], [Types.DOUBLE(), Types.LONG()])
REFUSED = Types.ROW_NAMED(["n", "spare"], [Types.STRING(), Types.STRING()])


class Counting(KeyedProcessFunction):
    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", self.declared))

    def process_element(self, key, ctx):  # type: ignore[no-untyped-def]
        row = self.counts.value() or Row(**dict.fromkeys(self.declared.field_names, None))
        row["n"] = (row["n"] or 0) + 1
        self.counts.update(row)
        yield f"{key}:{row['n']}"


def counting(
    env: StreamExecutionEnvironment, out: Path, declared: Any, rate: float | None = None, key_type: Any = None
) -> StreamExecutionEnvironment:
    keys = numbers(env, ROWS, rate).uid("numbers").map(lambda i: i % KEYS, Types.LONG()).uid("keys")
    keyed = keys.key_by(lambda key: key, key_type or Types.LONG())
    keyed.process(Counting(declared), Types.STRING()).uid("counts").sink_to(file_sink(out)).uid("files")
    return env


def test_a_savepoint_starts_a_job_whose_state_has_another_type(tmp_path: Path) -> None:
    """Written in memory, read in RocksDB, at another parallelism. What does not fit is refused: by the slots once,
    however many restarts are allowed, and for a key before anything is started.
    """
    root, out = tmp_path / "checkpoints", tmp_path / "out"
    env = environment(2, **checkpoints(root)).set_state_backend(HashMapStateBackend())
    client = counting(env, out, BEFORE, rate=500.0).execute_async("before")
    wait_until(lambda: client.report().completed >= 3 and committed(out), "checkpoints")
    savepoint = client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints"), aligned=True).result(
        WAIT_S
    )
    half = committed(out)
    assert half and half != EXPECTED

    options = {"execution_state__recovery_path": savepoint, **checkpoints(tmp_path / "new"), **restarts(1000)}
    told = failure(lambda: execute(counting(environment(2, **options), out, REFUSED)))
    refusal = (
        r"state 'counts' of operator '.*' \(uid 'counts'\) is declared as .*: field 'n' was INT, which cannot become"
    )
    assert re.search(refusal, told), told
    told = failure(lambda: execute(counting(environment(2, **options), out, BEFORE, key_type=Types.STRING())))
    assert "(uid 'counts') was keyed by LONG, now by STRING" in told
    assert committed(out) == half, "no row was processed"

    env = environment(3, **options).set_state_backend(EmbeddedRocksDBStateBackend())
    execute(counting(env, out, AFTER))
    assert committed(out) == EXPECTED
