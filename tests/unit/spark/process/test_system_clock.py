"""The clock by which work is measured leaves out what a thread waits for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from penstock.spark.process.system_clock import SystemClock

needs_schedstat = pytest.mark.skipif(
    not os.path.exists("/proc/thread-self/schedstat"), reason="this system does not tell how long a thread waited"
)


def spin(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


@needs_schedstat
def test_waiting_for_a_processor_is_left_out() -> None:
    """Work of 0.2 s of processor time, beside four processes for each processor, takes about 1 s and costs 0.2 s."""
    neighbours = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * len(os.sched_getaffinity(0)))
    ]
    try:
        clock = SystemClock()
        began_ms, started_ms = clock.undisturbed_ms(), clock.monotonic_ms()
        spin(0.2)
        cost_ms, took_ms = clock.undisturbed_ms() - began_ms, clock.monotonic_ms() - started_ms
    finally:
        for process in neighbours:
            process.kill()
            process.wait()
    assert took_ms > 300
    assert 190 < cost_ms < 0.8 * took_ms


def test_what_a_thread_sleeps_is_counted() -> None:
    clock = SystemClock()
    began_ms = clock.undisturbed_ms()
    threading.Event().wait(0.02)
    assert clock.undisturbed_ms() - began_ms > 15


def test_each_thread_has_its_own_time() -> None:
    clock, found = SystemClock(), []
    clock.undisturbed_ms()

    def measure() -> None:
        began_ms = clock.undisturbed_ms()
        spin(0.01)
        found.append(clock.undisturbed_ms() - began_ms)

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join(20)
    assert found[0] > 5
