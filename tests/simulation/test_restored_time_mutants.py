"""The simulation finds subtasks that resume at a wrong time, and timers that fire before theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.graph.logical import OperatorKind
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.operators.event_time.timers import TimerQueue
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.protocol.channel import watermark_valve
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS, WatermarkValve
from penstock.protocol.restore import rescale
from penstock.protocol.values.elements import InBandEvent
from penstock.runtime.checkpoint.subtask_restore import SubtaskRestore
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("5.2d")
def subtasks_resume_where_their_consumers_are(patch: Patch) -> None:
    """Leave idle ones out, which is right for those behind them only: these have heard that they were idle."""
    in_flight = SubtaskRestore.in_flight

    def as_consumers(restore: Any) -> Any:
        found, old = in_flight(restore), restore._old
        if not old.is_rescaled or not old.of_head or not restore._subtask.gate.channels:
            return found
        said_ms = rescale.live_start(old.of_head).watermark_ms
        return replace(found, current_ms=max(said_ms, found.current_ms), emitted_ms=max(said_ms, found.emitted_ms))

    patch(SubtaskRestore, "in_flight", as_consumers)


@breaks("5.2e")
def restored_channels_say_nothing_before_an_event(patch: Patch) -> None:
    patch(WatermarkValve, "start", lambda valve: valve.current_ms)


@breaks("5.2f")
def what_no_generator_was_asked_for_is_forgotten(patch: Patch) -> None:
    patch(WatermarkGenerators, "continue_from", lambda self, old: None)


@breaks("5.2f")
def what_a_source_without_splits_has_seen_is_forgotten(patch: Patch) -> None:
    continue_from = WatermarkGenerators.continue_from

    def unless_a_source(self: Any, old: Any) -> None:
        if self.operator.kind is not OperatorKind.SOURCE:
            continue_from(self, old)

    patch(WatermarkGenerators, "continue_from", unless_a_source)


@breaks("5.2g")
def generators_start_with_their_first_row(patch: Patch) -> None:
    patch(WatermarkGenerators, "wait_for", lambda self, splits: None)
    patch(WatermarkGenerators, "continue_from", lambda self, old: None)


@breaks("5.1c")
def what_is_registered_late_is_restored_as_due(patch: Patch) -> None:
    restore = TimerQueue._restore

    def forgets(self: Any) -> None:
        restore(self)
        self._overdue = sorted([*self._overdue, *(entry for _, entry in self._waiting)])
        self._waiting = []

    patch(TimerQueue, "_restore", forgets)


@breaks("5.1c")
def what_waits_fires_with_the_watermark_of_another_owner(patch: Patch) -> None:
    patch(TimerQueue, "_has_waited", lambda self, now_ms: bool(self._waiting) and self._time.behind)


@breaks("5.8a")
def the_least_counts_when_all_are_idle(patch: Patch) -> None:
    reached = WatermarkValve._reached
    patch(WatermarkValve, "_reached", lambda valve: None if valve.is_idle else reached(valve))


@breaks("5.10")
def whoever_is_idle_lets_time_pass(patch: Patch) -> None:
    patch(watermark_valve._Channel, "compare", lambda channel, heard: None)


@breaks("5.10")
def pauses_end_before_their_subtasks_are_active(patch: Patch) -> None:
    """Say that a pause has ended before "active": the channel is idle between, and has heard of as much as others."""
    emit = SubtaskClock.emit_idleness

    def reversed_(clock: SubtaskClock, idle: bool) -> None:
        said: list[InBandEvent] = []
        with_emit, clock._emit = clock._emit, said.append
        try:
            emit(clock, idle)
        finally:
            clock._emit = with_emit
        for event in said if idle else reversed(said):
            with_emit(event)

    patch(SubtaskClock, "emit_idleness", reversed_)


@breaks("5.10")
def snapshots_contain_no_pauses(patch: Patch) -> None:
    in_flight, restore = SubtaskRestore.in_flight, WatermarkValve.restore
    patch(SubtaskRestore, "in_flight", lambda self: replace(in_flight(self), pauses={}))
    patch(WatermarkValve, "restore", lambda valve, times, current_ms=WATERMARK_MIN_MS, pauses=None: restore(
        valve, [msgspec.structs.replace(time, other_pauses={}) for time in times], current_ms))  # fmt: skip


@breaks("5.9")
def who_has_no_split_holds_time_back(patch: Patch) -> None:
    patch(WatermarkGenerators, "has_none", lambda self: None)


LATE = r"fired before the next watermark"
LATE_ROW = r"is late: the watermark is"
UNHEARD = "an-idle-input-has-not-heard-of-the-end-of-a-pause"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (subtasks_resume_where_their_consumers_are, "an-idle-owner-has-unread-rows", r"is late: the watermark is"),
    (
        restored_channels_say_nothing_before_an_event,
        "the-watermark-of-a-silent-source-is-in-flight",
        r"time has never been",
    ),
    (
        what_no_generator_was_asked_for_is_forgotten,
        "a-clock-has-not-been-asked-since-its-last-row",
        r"time has never been",
    ),
    (
        what_a_source_without_splits_has_seen_is_forgotten,
        "a-source-without-splits-has-not-been-asked",
        r"time has never been",
    ),
    (generators_start_with_their_first_row, "a-clock-has-subtasks-without-rows", r"time has never been later than"),
    (who_has_no_split_holds_time_back, "a-source-has-more-subtasks-than-splits", r"time has never been later than"),
    (
        the_least_counts_when_all_are_idle,
        "all-sources-are-silent-the-one-ahead-first",
        r"time has never been that of the source ahead",
    ),
    (whoever_is_idle_lets_time_pass, UNHEARD, LATE_ROW),
    (pauses_end_before_their_subtasks_are_active, UNHEARD, LATE_ROW),
    (snapshots_contain_no_pauses, UNHEARD, LATE_ROW),
    (what_is_registered_late_is_restored_as_due, "timers-registered-late", LATE),
    (what_waits_fires_with_the_watermark_of_another_owner, "timers-registered-late", LATE),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
