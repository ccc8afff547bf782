"""Calls run next to their subtask, many at a time; what blocks for ever holds up nothing, and no end waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Callable

import pytest

from penstock.operators.calls.call_runner import Invocation
from penstock.runtime.process.call_threads import LoopRunner, ThreadRunner, new_call_runner
from penstock.runtime.process.context import current_subtask

LIMIT_S = 20.0
never = threading.Event()
"""Never set."""


def runner_of(invoke: Callable[[Any], Any], blocks: bool) -> tuple[Any, threading.Event]:
    bell = threading.Event()
    return new_call_runner(Invocation(invoke, blocks, 10, bell.set, "a (1/1)", 7)), bell


def answers(runner: Any, bell: threading.Event, count: int) -> dict[int, Any]:
    """Wait for so many answers, as a subtask does."""
    found: dict[int, Any] = {}
    while len(found) < count:
        assert bell.wait(LIMIT_S), f"{len(found)} of {count} answers have come"
        bell.clear()
        while runner.answered:
            answer = runner.answered.popleft()
            assert answer.number not in found
            found[answer.number] = answer.error if answer.error is not None else answer.result
    return found


def both(number: int) -> list[Any]:
    return [number, current_subtask()]


async def both_async(number: int) -> list[Any]:
    await asyncio.sleep(0)
    return both(number)


def fails(number: int) -> Any:
    raise SystemExit(number)


async def fails_async(number: int) -> Any:
    raise KeyboardInterrupt(number)


@pytest.mark.parametrize(("invoke", "blocks"), [(both, True), (both_async, False)])
def test_every_call_is_answered_in_a_thread_of_the_subtask(invoke: Any, blocks: bool) -> None:
    runner, bell = runner_of(invoke, blocks)
    assert isinstance(runner, ThreadRunner if blocks else LoopRunner)
    runner.begin([(n, n * n) for n in range(6)])
    runner.begin([(n, n * n) for n in range(6, 10)])
    assert answers(runner, bell, 10) == {n: [n * n, 7] for n in range(10)}
    runner.close()


@pytest.mark.parametrize(("invoke", "blocks"), [(fails, True), (fails_async, False)])
def test_what_ends_threads_and_loops_is_an_error_of_its_call(invoke: Any, blocks: bool) -> None:
    runner, bell = runner_of(invoke, blocks)
    for number in range(3):
        runner.begin([(number, number)])
        assert type(answers(runner, bell, 1)[number]) in (SystemExit, KeyboardInterrupt)
    runner.close()


def test_as_many_calls_block_at_once_as_there_are() -> None:
    barrier = threading.Barrier(10)
    runner, bell = runner_of(lambda _: [barrier.wait(LIMIT_S)], True)
    runner.begin([(n, n) for n in range(10)])
    assert sorted(found[0] for found in answers(runner, bell, 10).values()) == list(range(10))
    runner.close()


def blocks_for_ever(number: int) -> Any:
    never.wait(1000 if number else 0)
    return [number]


async def sleeps_for_ever(number: int) -> Any:
    await asyncio.sleep(1000 if number else 0)
    return [number]


@pytest.mark.parametrize(("invoke", "blocks"), [(blocks_for_ever, True), (sleeps_for_ever, False)])
def test_a_call_that_never_ends_holds_up_no_other_and_no_end(invoke: Any, blocks: bool) -> None:
    runner, bell = runner_of(invoke, blocks)
    runner.begin([(1, 1), (2, 2)])
    runner.give_up(1)
    runner.begin([(3, 0)])
    assert answers(runner, bell, 1) == {3: [0]}
    started_s = time.monotonic()
    runner.close()
    assert time.monotonic() - started_s < LIMIT_S


def test_coroutines_are_cancelled_when_their_subtask_ends() -> None:
    cancelled: list[int] = []

    async def waits(number: int) -> Any:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    runner, _ = runner_of(waits, False)
    runner.begin([(1, 1), (2, 2)])
    deadline_s = time.monotonic() + LIMIT_S
    while len(runner._tasks) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.001)
    runner.close()
    assert sorted(cancelled) == [1, 2] and not runner._thread.is_alive()


def test_an_end_without_calls_starts_nothing() -> None:
    runner, _ = runner_of(both_async, False)
    runner.close()
    assert runner._thread is None


def test_hanging_calls_take_no_more_threads_than_twice_the_capacity() -> None:
    entered: list[int] = []
    release = threading.Event()

    def hangs(number: int) -> Any:
        entered.append(number)
        release.wait(LIMIT_S)
        return [number]

    runner, bell = runner_of(hangs, True)
    for first in range(0, 60, 10):
        runner.begin([(n, n) for n in range(first, first + 10)])
        if first < 50:
            for number in range(first, first + 10):
                runner.give_up(number)
    assert runner._threads == 20
    release.set()
    assert answers(runner, bell, 10) == {n: [n] for n in range(50, 60)}
    assert len(entered) <= 30, "calls that were given up before they began are never made"
    runner.close()
