"""Tests what goes wrong in user code, and what its user reads: his own lines first, then the operator and the count."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.common.job_execution import JobExecutionError
from penstock.common.job_status import JobStatus
from penstock.common.row_types.type_information import TypeInformation
from penstock.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, ValueStateDescriptor
from penstock.graph.pickling import UnpicklableFunction
from tests.spark.small_jobs import (
    checkpoints,
    environment,
    execute,
    failure,
    file_sink,
    is_alive,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def parse(value: int) -> int:
    if value == 777:
        raise ValueError("cannot parse 777")
    return value


def lines_of(message: str) -> list[str]:
    return message.splitlines()


def test_without_checkpointing_the_first_error_ends_the_job_and_the_users_traceback_comes_first() -> None:
    env = environment()
    numbers(env, 5000).rebalance().map(parse, Types.LONG()).name("parse").filter(lambda _: False).print()
    first, where, *_, last = lines_of(failure(lambda: execute(env)))
    assert first == "Traceback (most recent call last):"
    assert __file__ in where and "in parse" in where
    assert "the first failure" in last and "no restarts are configured" in last


def test_each_failure_is_told_with_its_count_until_the_restarts_are_used_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment(**checkpoints(tmp_path / "checkpoints"), **restarts(2))
    numbers(env, 5000).map(parse, Types.LONG()).name("parse").sink_to(file_sink(tmp_path / "out"))
    client = env.execute_async("parsing")
    message = failure(lambda: client.wait(timeout_ms=90_000))
    told = capsys.readouterr().err
    assert told.index("Traceback") < told.index("ValueError: cannot parse 777") < told.index("Failure 1 of this job")
    assert "penstock: Failure 2 of this job" in told and "Failure 3" not in told
    assert "penstock: Traceback" not in told
    lines = told.split("\n")
    assert f'File "{__file__}"' in lines[next(i for i, line in enumerate(lines) if "Traceback" in line) + 1]
    assert "operator 'parse': ValueError: cannot parse 777" in message
    assert "this was failure 3 of it, and all 2 restarts" in message
    assert client.report().restarts == 2
    assert "penstock/runtime" not in told + message  # none of our own frames


class Unready(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise LookupError("the table is not there")

    def map(self, value: Any) -> Any:
        return value


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def speechless(_value: int) -> int:
    raise Speechless


def leaves(value: int) -> int:
    return sys.exit("that is enough")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (Unready(), "LookupError: the table is not there"),
        (speechless, "Speechless"),
        (leaves, "SystemExit: that is enough"),
        (lambda _value: next(iter(())), "StopIteration"),
    ],
)
def test_whatever_user_code_raises_names_the_operator(function: MapFunction | Callable[[int], int], says: str) -> None:
    env = environment(1)
    numbers(env, 10).map(function, Types.LONG()).name("odd").print()
    message = failure(lambda: execute(env))
    assert f"operator 'odd': {says}" in message
    assert lines_of(message)[0] == "Traceback (most recent call last):"
    assert __file__ in lines_of(message)[1]


def test_a_function_that_returns_no_rows_is_told_what_it_should_return() -> None:
    env = environment(1)
    numbers(env, 10).flat_map(lambda i: i, Types.LONG()).name("flat").print()
    message = failure(lambda: execute(env))
    assert message.startswith("operator 'flat': it must yield its rows, or return an iterable of them or None; it")


def test_state_that_does_not_fit_its_type_names_state_and_key(tmp_path: Path) -> None:
    class Wrong(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.size = runtime_context.get_state(ValueStateDescriptor("size", Types.LONG()))

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
            self.size.update("large")
            yield value

    env = environment(**checkpoints(tmp_path / "checkpoints"), **restarts(0))
    keyed = numbers(env, 5000, 1000.0).key_by(lambda i: i % 3, Types.LONG())
    keyed.process(Wrong(), Types.LONG()).name("wrong").print()
    message = failure(lambda: execute(env))
    assert "declined by subtask" in message and "of 'wrong -> Sink: Print to Std. Out'" in message
    assert "state 'size' of operator 'wrong': an entry of key" in message
    assert "its value does not fit its declared type LONG: 'large'" in message


def test_a_process_that_ends_itself_is_a_lost_slot() -> None:
    env = environment(1)
    numbers(env, 10).map(lambda _value: os._exit(3), Types.LONG()).print()
    message = failure(lambda: execute(env))
    # In a session of the user's nobody records how a process ends; which one it was is known.
    assert re.match(r"slot 0 was lost: .* \(process \d+ on 127.0.0.1\)", message)
    assert "Traceback" not in message


@pytest.mark.parametrize("key_type", [Types.LONG(), None])
def test_a_key_of_none_is_refused_with_its_row_and_a_way_out(key_type: TypeInformation | None) -> None:
    env = environment()
    pairs = numbers(env, 1000).map(lambda i: (None if i == 500 else i, i), PAIR).name("pairs")
    pairs.key_by(lambda pair: pair[0], key_type).reduce(lambda a, b: b).filter(lambda _: False).print()
    message = failure(lambda: execute(env))
    assert message.startswith("operator 'pairs': key_by after it: a key must not be None")
    assert "the row was (None, 500)" in message
    assert "filter such rows out" in message


def test_none_inside_a_composite_key_is_a_key_as_any_other() -> None:
    env = environment()
    key_type = Types.TUPLE([Types.STRING(), Types.LONG()])
    pairs = numbers(env, 100).map(lambda i: (None if i % 2 else "even", 1), key_type)
    counts = pairs.key_by(lambda pair: pair, key_type).reduce(lambda a, b: (a[0], a[1] + b[1]))
    with counts.execute_and_collect("counting") as rows:
        assert {(None, 50), ("even", 50)} <= set(rows)


def test_collected_rows_come_before_the_error_and_a_limit_ends_the_job(tmp_path: Path) -> None:
    env = environment(**checkpoints(tmp_path / "checkpoints"), **restarts(0))
    env.set_parallelism(1)  # two readers have no order between them: what one puts out after the other's error counts
    rows = numbers(env, 3000, 1000.0).map(parse, Types.LONG())
    collected = []
    with rows.execute_and_collect("collecting") as results, pytest.raises(JobExecutionError) as raised:
        for row in results:
            collected.append(row)
    assert "ValueError: cannot parse 777" in str(raised.value)
    assert collected == list(range(len(collected)))
    assert len(collected) <= 777
    env = environment()
    assert len(numbers(env, 100).execute_and_collect("limited", limit=7)) == 7


@pytest.mark.parametrize(
    ("declared", "row", "says"),
    [
        (Types.LONG(), "x", "a row that it put out does not fit its declared type LONG"),
        (
            Types.ROW_NAMED(["id", "size"], [Types.LONG(), Types.INT()]),
            Row(id=1, size="x"),
            "a row that it put out, field 'size': 'x' (str) does not fit INT",
        ),
        (PAIR, (1, 2, 3), "a row that it put out does not fit its declared type TUPLE(LONG, LONG)"),
        (Types.INT(), 2**31, "a row that it put out does not fit its declared type INT"),
    ],
)
def test_a_row_that_does_not_fit_its_declared_type_names_operator_field_and_row(
    declared: TypeInformation, row: object, says: str
) -> None:
    env = environment(1)
    numbers(env, 10).map(lambda _value: row, declared).name("odd").print()
    message = failure(lambda: execute(env))
    assert message.startswith(f"operator 'odd': {says}")
    assert f"the row was {row!r}" in message
    assert "Traceback" not in message


def test_a_function_that_cannot_be_pickled_names_operator_and_variable_before_anything_starts() -> None:
    lock = threading.Lock()
    env = environment()

    def guarded(value: int) -> int:
        with lock:
            return value

    numbers(env, 10).map(guarded, Types.LONG()).name("guarded").print()
    with pytest.raises(UnpicklableFunction, match=r"operator 'guarded'.*closure variable 'lock' is a _thread\.lock"):
        env.execute("never")


def endless(value: int) -> int:
    while True:
        time.sleep(0.01)


def test_a_function_that_never_returns_ends_with_its_process_after_the_cancellation_timeout() -> None:
    env = environment(task_cancellation_timeout="500 ms")
    numbers(env, 10).map(endless, Types.LONG()).name("endless").print()
    client = env.execute_async("endless")
    wait_until(lambda: client.report().state == "RUNNING", "the job runs")
    pids = client.report().slot_pids
    client.cancel().result(60)
    with pytest.raises(JobExecutionError) as raised:
        client.wait(timeout_ms=1000)
    assert raised.value.status is JobStatus.CANCELED
    wait_until(lambda: not any(map(is_alive, pids)), "the slots' processes are gone")


def test_an_endless_function_does_not_keep_others_from_restarting(tmp_path: Path) -> None:
    """One subtask raises; its neighbour hangs for ever. The neighbour's process is ended, and the job goes on."""
    hung, failed = tmp_path / "hung", tmp_path / "failed"

    def work(value: int) -> int:
        if value == 1 and not hung.exists():
            hung.touch()
            while True:
                time.sleep(0.01)
        while not hung.exists():
            time.sleep(0.01)
        if value == 0 and not failed.exists():
            failed.touch()
            raise ValueError("only once")
        return value

    env = environment(task_cancellation_timeout="500 ms", **restarts(5))
    numbers(env, 2).rebalance().map(work, Types.LONG()).name("work").print()
    client = env.execute_async("hangs once")
    client.wait(timeout_ms=90_000)
    assert client.report().restarts >= 1


def test_output_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = environment(1)
    numbers(env, 10).map(str, Types.STRING()).sink_to(file_sink(tmp_path / "file" / "out"))
    with pytest.raises(Exception) as raised:
        execute(env)
    assert str(tmp_path / "file" / "out") in str(raised.value)
    assert "Traceback" not in str(raised.value)
