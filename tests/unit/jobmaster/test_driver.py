"""Tests the order in which the effects of the driver's machine are executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from penstock.jobmaster.current_job import Driver
from penstock.protocol.driver.driver_effects import CheckpointAborted, Effect, SubmitSlot, TriggerCheckpoint
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.reasons import FailureReason


class _Decided:
    """Takes the place of the machine: an event is the list of effects that it leads to."""

    lifecycle = coordinator = None

    def handle(self, event: Any, now_ms: float) -> list[Effect]:
        return list(event)


class _Clock:
    def monotonic_ms(self) -> float:
        return 0.0


def executed(first: Sequence[Effect], during: Mapping[str, Sequence[Effect]]) -> list[str]:
    """Execute `first`. `during`: effect -> the effects of an event that arises while it is executed."""
    log: list[str] = []
    depth = 0

    def execute(effect: Any) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1, "one effect is executed inside another"
        log.append(name(effect))
        if name(effect) in during:
            handle(during[name(effect)])
        depth -= 1

    machine: Any = _Decided()
    clock: Any = _Clock()
    handle: Callable[[Any], None] = Driver(machine, clock, execute).handle
    handle(first)
    return log


def name(effect: Any) -> str:
    match effect:
        case SubmitSlot(slot):
            return f"submit {slot}"
        case TriggerCheckpoint(barrier):
            return f"trigger {barrier.checkpoint_id}"
        case CheckpointAborted(checkpoint_id):
            return f"abort {checkpoint_id}"
    raise AssertionError(effect)


def trigger(checkpoint_id: int) -> Effect:
    return TriggerCheckpoint(Barrier(checkpoint_id, 0))


def abort(checkpoint_id: int) -> Effect:
    return CheckpointAborted(checkpoint_id, FailureReason.IO_EXCEPTION, "")


def test_what_an_effect_brings_about_is_executed_next() -> None:
    during = {"submit 1": [SubmitSlot(2), SubmitSlot(3)], "submit 2": [SubmitSlot(4)]}
    order = executed([SubmitSlot(1), SubmitSlot(9)], during)
    assert order == ["submit 1", "submit 2", "submit 4", "submit 3", "submit 9"]


def test_a_later_trigger_never_passes_one_that_waits() -> None:
    order = executed([trigger(1), trigger(2), SubmitSlot(9)], {"trigger 1": [abort(1), trigger(3), SubmitSlot(4)]})
    assert order == ["trigger 1", "abort 1", "submit 4", "trigger 2", "trigger 3", "submit 9"]


def test_a_checkpoint_that_is_aborted_while_its_trigger_waits_is_not_triggered() -> None:
    assert executed([trigger(1), trigger(2)], {"trigger 1": [abort(1), abort(2)]}) == [
        "trigger 1",
        "abort 1",
        "abort 2",
    ]


def test_an_error_leaves_nothing_behind() -> None:
    machine: Any = _Decided()
    clock: Any = _Clock()
    log: list[str] = []

    def execute(effect: Any) -> None:
        log.append(name(effect))
        if len(log) == 1:
            raise RuntimeError("the port is broken")

    driver = Driver(machine, clock, execute)
    handle: Callable[[Any], None] = driver.handle
    with pytest.raises(RuntimeError, match="the port is broken"):
        handle([SubmitSlot(1), SubmitSlot(2)])
    handle([SubmitSlot(3)])
    assert log == ["submit 1", "submit 3"]
