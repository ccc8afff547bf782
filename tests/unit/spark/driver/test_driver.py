"""Drives the driver's loop with real threads: calls stay in order, and neither errors nor load stop its time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from penstock.spark.driver.driver_loop import DriverLoop, OrderedWork
from penstock.spark.process.system_clock import SystemClock

WAIT_S = 20.0


class Machine:
    """Is due at each of `deadlines_ms`, relative to its making, one after the other."""

    def __init__(self, clock: SystemClock, deadlines_ms: Sequence[float] = ()) -> None:
        self.clock = clock
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.planned = tuple(clock.monotonic_ms() + d for d in deadlines_ms)
        self.deadlines = list(self.planned)

    def next_deadline_ms(self) -> float | None:
        return self.deadlines[0] if self.deadlines else None

    def after_event(self) -> None:
        pass

    def on_time(self, now_ms: float) -> None:
        if self.deadlines and self.deadlines[0] <= self.clock.monotonic_ms():
            self.events.put(("due", self.deadlines.pop(0)))


Errors = queue.SimpleQueue[Exception]
Run = Callable[..., tuple[DriverLoop, Machine, Errors]]


@pytest.fixture
def running() -> Iterator[Run]:
    loops: list[DriverLoop] = []

    def run(deadlines_ms: Sequence[float] = ()) -> tuple[DriverLoop, Machine, Errors]:
        clock = SystemClock()
        machine = Machine(clock, deadlines_ms)
        errors: Errors = queue.SimpleQueue()
        loop = DriverLoop(clock, errors.put)
        loops.append(loop)
        loop.start(machine)
        return loop, machine, errors

    yield run
    for loop in loops:
        loop.stop()
        loop.join(WAIT_S)


def test_calls_run_in_order_in_one_thread(running: Run) -> None:
    loop, machine, _ = running()
    for number in range(100):
        loop.post(partial(lambda n: machine.events.put((n, threading.current_thread().name)), number))
    assert [machine.events.get(timeout=WAIT_S) for _ in range(100)] == [(n, "penstock-driver") for n in range(100)]


def test_the_machine_hears_of_time_when_it_is_due_also_while_calls_keep_coming(running: Run) -> None:
    loop, machine, _ = running((0, 5, 30))
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            loop.post(lambda: None)
            stop.wait(0.0005)

    thread = threading.Thread(target=flood)
    thread.start()
    assert tuple(machine.events.get(timeout=WAIT_S)[1] for _ in range(3)) == machine.planned
    stop.set()
    thread.join()


def test_an_error_of_ours_is_told_and_the_loop_goes_on(running: Run) -> None:
    loop, machine, errors = running()
    loop.post(lambda: 1 / 0)
    loop.post(lambda: machine.events.put("after"))
    assert machine.events.get(timeout=WAIT_S) == "after"
    assert isinstance(errors.get(timeout=WAIT_S), ZeroDivisionError)


def test_work_is_done_in_order_elsewhere_and_its_outcome_comes_back_into_the_loop(running: Run) -> None:
    loop, machine, _ = running()
    work = OrderedWork(loop)
    gate = threading.Event()

    def slow() -> str:
        assert gate.wait(WAIT_S)
        return threading.current_thread().name

    def done(outcome: object) -> None:
        machine.events.put((outcome, threading.current_thread().name))

    work.submit("slow", slow, done)
    work.submit("fails", lambda: dict[str, int]()["missing"], done)
    loop.post(gate.set)
    assert machine.events.get(timeout=WAIT_S) == ("penstock-work", "penstock-driver")
    outcome, _ = machine.events.get(timeout=WAIT_S)
    assert isinstance(outcome, KeyError)
    work.stop()
