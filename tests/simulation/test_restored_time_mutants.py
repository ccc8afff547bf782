"""The simulation finds subtasks that resume at a wrong time after a rescale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.protocol.channel.watermark_valve import WatermarkValve
from penstock.protocol.restore import rescale
from penstock.runtime.checkpoint.subtask_restore import SubtaskRestore
from tests.simulation.finding import assert_found

Patch = Callable[[Any, str, Any], None]


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


def restored_channels_say_nothing_before_an_event(patch: Patch) -> None:
    patch(WatermarkValve, "start", lambda valve: valve.current_ms)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (subtasks_resume_where_their_consumers_are, "an-idle-owner-has-unread-rows", r"is late: the watermark is"),
    (
        restored_channels_say_nothing_before_an_event,
        "the-watermark-of-a-silent-source-is-in-flight",
        r"time has never been",
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
