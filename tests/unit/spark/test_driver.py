from __future__ import annotations

import queue
import threading

import pytest

from penstock.spark.driver import DriverLoop, OrderedWork
from penstock.spark.system_clock import SystemClock

WAIT_S = 20.0


class Machine:
    """Is due at each of `deadlines_ms`, relative to its making, one after the other."""

    def __init__(self, clock, deadlines_ms=()):
        self.clock = clock
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.planned = tuple(clock.monotonic_ms() + d for d in deadlines_ms)
        self.deadlines = list(self.planned)

    def next_deadline_ms(self):
        return self.deadlines[0] if self.deadlines else None

    def settle(self):
        pass

    def on_time(self, now_ms):
        if self.deadlines and self.deadlines[0] <= self.clock.monotonic_ms():
            self.events.put(("due", self.deadlines.pop(0)))


@pytest.fixture
def running():
    loops = []

    def run(deadlines_ms=()):
        clock = SystemClock()
        machine, errors = Machine(clock, deadlines_ms), queue.SimpleQueue()
        loop = DriverLoop(clock, errors.put)
        loops.append(loop)
        loop.start(machine)
        return loop, machine, errors

    yield run
    for loop in loops:
        loop.stop()
        loop.join(WAIT_S)


def test_calls_run_in_order_in_one_thread(running):
    loop, machine, _ = running()
    for number in range(100):
        loop.post(lambda number=number: machine.events.put((number, threading.current_thread().name)))
    assert [machine.events.get(timeout=WAIT_S) for _ in range(100)] == [(n, "penstock-driver") for n in range(100)]


def test_the_machine_hears_of_time_when_it_is_due_also_while_calls_keep_coming(running):
    loop, machine, _ = running((0, 5, 30))
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            loop.post(lambda: None)
            stop.wait(0.0005)

    thread = threading.Thread(target=flood)
    thread.start()
    assert tuple(machine.events.get(timeout=WAIT_S)[1] for _ in range(3)) == machine.planned
    stop.set()
    thread.join()


def test_an_error_of_ours_is_told_and_the_loop_goes_on(running):
    loop, machine, errors = running()
    loop.post(lambda: 1 / 0)
    loop.post(lambda: machine.events.put("after"))
    assert machine.events.get(timeout=WAIT_S) == "after"
    assert isinstance(errors.get(timeout=WAIT_S), ZeroDivisionError)


def test_work_is_done_in_order_elsewhere_and_its_outcome_comes_back_into_the_loop(running):
    loop, machine, _ = running()
    work = OrderedWork(loop)
    gate = threading.Event()

    def slow():
        assert gate.wait(WAIT_S)
        return threading.current_thread().name

    def done(outcome):
        machine.events.put((outcome, threading.current_thread().name))

    work.submit("slow", slow, done)
    work.submit("fails", lambda: {}["missing"], done)
    loop.post(gate.set)
    assert machine.events.get(timeout=WAIT_S) == ("penstock-work", "penstock-driver")
    outcome, _ = machine.events.get(timeout=WAIT_S)
    assert isinstance(outcome, KeyError)
    work.stop()
