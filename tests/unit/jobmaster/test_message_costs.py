"""Tests that what a message costs the driver does not grow with the number of slots.

Python's own bytecodes are counted, not time: the same on every machine, however busy. Copies of a tuple are one each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from micro.driver_messages import Driver
from penstock.protocol.restore.drain_phases import Draining
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import DrainReport

FEW, MANY = 8, 128


def bytecodes(action: Callable[[], None]) -> int:
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return counted


def registration(slots: int) -> float:
    driver = Driver(slots)
    messages = driver.registrations()[:-1]
    return bytecodes(lambda: driver.handle(messages)) / len(messages)


def running(slots: int) -> Driver:
    driver = Driver(slots)
    driver.handle(driver.registrations())
    driver.run()
    driver.handle(driver.heartbeats())
    return driver


def heartbeat(slots: int) -> float:
    driver = running(slots)
    messages = driver.heartbeats()
    return bytecodes(lambda: driver.handle(messages)) / slots


def acknowledgement(slots: int) -> float:
    driver = running(slots)
    messages = driver.acks(driver.trigger())[:-1]
    return bytecodes(lambda: driver.handle(messages)) / len(messages)


def checkpoint(slots: int) -> float:
    driver = running(slots)

    def take() -> None:
        driver.handle(driver.acks(driver.trigger()))
        driver.ports.do_work()

    take()
    counted = bytecodes(take)
    assert driver.master.report.completed == 2
    return counted / slots


def heartbeat_with_missing_slots(slots: int) -> float:
    """Send heartbeats while the others wait for the missing ones."""
    driver, left = running(slots), 3 * slots // 4
    driver.lose(range(left, slots))
    messages = driver.heartbeats()[:left]
    return bytecodes(lambda: driver.handle(messages)) / len(messages)


def drain_report(slots: int) -> float:
    draining = Draining([slots, slots], [(0, 1)])
    draining.start()
    reports = [
        DrainReport(Generation(0, 1), slot, SubtaskId(1, slot), 1, True, slot < slots - 1, {0: 1}, {})
        for slot in range(slots)
    ]

    def report_all() -> None:
        for report in reports:
            draining.on_report(report)

    return bytecodes(report_all) / slots


@pytest.mark.parametrize(
    "cost", [registration, heartbeat, acknowledgement, checkpoint, heartbeat_with_missing_slots, drain_report]
)
def test_a_message_costs_the_same_with_many_slots(cost: Callable[[int], float]) -> None:
    few, many = cost(FEW), cost(MANY)
    assert many <= 1.1 * few, f"{few:.0f} bytecodes with {FEW} slots, {many:.0f} with {MANY}"
