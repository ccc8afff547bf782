"""Tests slots on a real Spark: registering, dying, coming back, leaving. `local[n]` allows one attempt per task, so
each return is a submission of the keeper.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.common.configuration import Configuration
from penstock.network.control_server import ControlServer
from penstock.network.io_loop import IoLoop
from penstock.network.listening import listen
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Cancel, Deploy, Leave, Left, Peer, Printed, ReachedEndOfData, Register
from penstock.spark.cluster.submission import search_path
from penstock.spark.process.slot_task import SlotArguments, slot_task
from penstock.spark.session import Substrate
from penstock.spark.slots.spark_slots import SparkSlots
from tests.shared_spark import own_substrate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SLOTS = 2
WAIT_S = 60.0
G = Generation(1, 0)
Kind = TypeVar("Kind")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def substrate() -> Substrate:
    return own_substrate(SLOTS)


class Driver:
    """Hears slots; submits them with the tiny body."""

    def __init__(self, substrate: Substrate, entry: str = "slot_body:main") -> None:
        self.events: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
        self.loop = IoLoop("test-driver-io")
        self.loop.start()
        secret, job_id = b"the secret", f"job-{next(_numbers)}"
        self.server = ControlServer(
            self.loop,
            listen("127.0.0.1", (range(1),), "jobmanager.rpc.bind-port", "jobmanager.bind-host"),
            job_id,
            secret,
            lambda process, message: self.events.put((process, message)),
            lambda process, detail: self.events.put((process, detail)),
            silence_timeout_ms=50_000,
        )
        paths = (*search_path(substrate, Configuration()), str(Path(__file__).parent))

        def body(slot: int, submission: int, relieves: bool) -> Callable[[Any], Iterator[Any]]:
            return slot_task(
                SlotArguments(
                    "127.0.0.1", self.server.port, secret, job_id, slot, submission, search_path=paths, entry=entry
                )
            )

        self.slots = SparkSlots(substrate, job_id, body, lambda *ended: self.events.put(("ended", ended)))
        self.alive: dict[int, Register] = {}

    def next(self, kind: type[Kind]) -> tuple[str, Kind]:
        """Return the next event of this kind; drop the others."""
        deadline = time.monotonic() + WAIT_S
        while True:
            process, message = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(message, kind):
                if isinstance(message, Register):
                    self.slots.on_registered(message.slot, message.submission)
                    self.alive[message.slot] = message
                return process, message

    def start(self) -> Driver:
        for slot in range(SLOTS):
            self.slots.submit(slot)
        while len(self.alive) < SLOTS:
            self.next(Register)
        return self

    def stop(self) -> None:
        for register in self.alive.values():
            self.server.send(register.process, Leave("the test is over"))
        self.slots.cancel_all()
        self.slots.wait_cancelled()
        self.server.stop()
        self.slots.join()
        self.loop.stop()


@pytest.fixture
def driver(substrate: Substrate) -> Iterator[Driver]:
    driver = Driver(substrate).start()
    yield driver
    driver.stop()


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_gone(pids: Iterable[int], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {left} live on"
        pause.wait(0.02)


def test_slots_register_from_processes_of_their_own(driver: Driver) -> None:
    registered = driver.alive
    assert sorted(registered) == [0, 1]
    assert len({r.pid for r in registered.values()} | {os.getpid()}) == 3
    assert {r.host for r in registered.values()} == {"127.0.0.1"}
    assert {r.submission for r in registered.values()} == {1}


def test_a_killed_slot_is_submitted_again_and_its_neighbour_never_notices(driver: Driver) -> None:
    before = dict(driver.alive)
    for time_killed in range(3):
        started = time.monotonic()
        os.kill(driver.alive[0].pid, signal.SIGKILL)
        _, again = driver.next(Register)
        assert time.monotonic() - started < 15.0  # half a second on a quiet machine
        assert (again.slot, again.submission) == (0, time_killed + 2)
    assert is_alive(before[1].pid)
    assert driver.slots.submissions() == {0: 4, 1: 1}
    driver.server.send(before[1].process, Cancel(G))
    assert driver.next(Left)[1].slot == 1


def test_a_slot_that_does_not_answer_is_replaced(driver: Driver) -> None:
    stuck = driver.alive[1]
    os.kill(stuck.pid, signal.SIGSTOP)
    driver.slots.resubmit(1)
    _, again = driver.next(Register)
    assert (again.slot, again.submission) == (1, 2)
    assert again.pid != stuck.pid
    wait_gone([stuck.pid])


def test_slots_connect_to_each_other_and_prints_arrive_with_their_subtask(driver: Driver) -> None:
    peers = [Peer(r.slot, r.host, r.data_port, r.process) for r in driver.alive.values()]
    for register in driver.alive.values():
        driver.server.send(register.process, Deploy(G, register.slot, peers, b"", None))
    connected = {driver.next(ReachedEndOfData)[1].slot for _ in driver.alive}
    assert connected == {0, 1}
    driver.server.send(driver.alive[1].process, Cancel(G))
    assert driver.next(Printed)[1] == Printed(1, 1, ["2> slot 1 prints"])


def test_leaving_ends_the_processes_and_nothing_is_submitted_again(substrate: Substrate) -> None:
    driver = Driver(substrate).start()
    pids = [r.pid for r in driver.alive.values()]
    driver.stop()
    wait_gone(pids, limit_s=2.0)
    assert driver.slots.submissions() == {0: 1, 1: 1}
    assert not any(t.name.startswith("penstock-keeper") for t in threading.enumerate())
    assert substrate.context.parallelize([1], 1).map(lambda _: sys.getswitchinterval()).collect() == [0.005]


def test_slots_that_are_cancelled_without_a_word_are_gone_too(substrate: Substrate) -> None:
    driver = Driver(substrate).start()
    pids = [r.pid for r in driver.alive.values()]
    driver.slots.cancel_all()
    driver.slots.join()
    wait_gone(pids, limit_s=15.0)
    driver.server.stop()
    driver.loop.stop()


def test_a_slot_that_loses_its_driver_ends(substrate: Substrate) -> None:
    driver = Driver(substrate).start()
    pids = [r.pid for r in driver.alive.values()]
    driver.server.stop()
    wait_gone(pids)
    driver.slots.cancel_all()
    driver.slots.join()
    driver.loop.stop()


def test_a_slot_that_cannot_start_says_why(substrate: Substrate) -> None:
    driver = Driver(substrate, entry="slot_body:fails")
    driver.slots.submit(0)
    _, (slot, fruitless, detail) = driver.next(tuple)
    assert (slot, fruitless) == (0, 1)
    assert "ValueError: slot 0 cannot start" in detail
    driver.stop()


def test_a_slot_that_waits_for_a_place_or_starts_slowly_is_not_given_up(substrate: Substrate, tmp_path: Path) -> None:
    """One killed slot finds its place taken, the other one's imports take long, and both are there in the end."""
    driver = Driver(substrate, entry="slot_body:slow_to_return").start()
    gate = str(tmp_path / "gate")
    places = substrate.task_places()
    assert places is not None

    def block(_rows: Iterable[int]) -> list[int]:
        deadline = time.monotonic() + WAIT_S
        while not os.path.exists(gate) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [1]

    # It takes what is free, and the first place that a slot leaves.
    tasks = places - SLOTS + 1
    rdd = substrate.context.parallelize(range(tasks), tasks).mapPartitions(block)
    others = threading.Thread(target=rdd.collect)
    others.start()
    wait_until_active(substrate, SLOTS + tasks - 1)
    os.kill(driver.alive[0].pid, signal.SIGKILL)
    wait_gone([driver.alive[0].pid])
    wait_until_active(substrate, SLOTS + tasks - 1)
    os.kill(driver.alive[1].pid, signal.SIGKILL)
    returned = [driver.next(Register)[1]]
    Path(gate).touch()
    returned.append(driver.next(Register)[1])
    others.join(WAIT_S)
    assert sorted((again.slot, again.submission) for again in returned) == [(0, 2), (1, 2)]
    driver.stop()


def wait_until_active(substrate: Substrate, tasks: int) -> None:
    deadline = time.monotonic() + WAIT_S
    tracker = substrate.context.statusTracker()
    pause = threading.Event()

    def active() -> int:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    while active() < tasks:
        assert time.monotonic() < deadline, f"{active()} of {tasks} tasks run"
        pause.wait(0.05)


def test_a_slot_without_our_code_says_what_to_install(substrate: Substrate) -> None:
    driver = Driver(substrate, entry="penstock_missing.slot:main")
    driver.slots.submit(0)
    _, (_, _, detail) = driver.next(tuple)
    assert "lacks penstock_missing: install it there, or send" in detail
    driver.stop()


def test_a_local_session_never_has_more_places(substrate: Substrate) -> None:
    assert substrate.fixed_places() == substrate.task_places() == max(os.cpu_count() or 1, SLOTS + 2)
