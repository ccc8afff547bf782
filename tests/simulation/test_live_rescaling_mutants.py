"""The simulation finds broken rules of rescales of a running job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.jobmaster.checkpoints import Checkpoints
from penstock.protocol.driver.rescaling import Rescaling
from penstock.protocol.driver.slots import SlotRoster
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks
from tests.simulation.test_savepoint_mutants import rows_are_taken_behind_a_terminating_snapshot

Patch = Callable[[Any, str, Any], None]


@breaks("12.6")
def metadata_describe_the_graph_that_runs_now(patch: Patch) -> None:
    assembled = Checkpoints._assembled

    def of_now(self: Any, publish: Any, triggered: Any) -> Any:
        return assembled(self, publish, replace(triggered, graph=self._job.graph))

    patch(Checkpoints, "_assembled", of_now)


@breaks("12.5b")
def a_rescale_restarts_before_its_checkpoint_is_published(patch: Patch) -> None:
    triggered = Rescaling.on_triggered

    def at_once(self: Any, now_ms: float) -> None:
        triggered(self, now_ms)
        pending.append(self)

    def look(self: Any, now: Any, now_ms: float) -> Any:
        if pending and pending.pop() is self:
            return self.on_published(now_ms)
        return looked(self, now, now_ms)

    pending: list[Any] = []
    looked = Rescaling.look
    patch(Rescaling, "on_triggered", at_once)
    patch(Rescaling, "look", look)


@breaks("12.7")
def seats_stay_when_slots_go(patch: Patch) -> None:
    patch(SlotRoster, "_retire", lambda self, first: [])


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (
        rows_are_taken_behind_a_terminating_snapshot,
        "rescale-takes-nothing-behind-its-checkpoint",
        r"took \d+ rows behind its last snapshot",
    ),
    (metadata_describe_the_graph_that_runs_now, "rescales-follow-each-other", r"incomplete"),
    (
        a_rescale_restarts_before_its_checkpoint_is_published,
        "rescales-follow-each-other",
        r"the rescale is restarting, and the event 'not taken' cannot come then",
    ),
    (
        a_rescale_restarts_before_its_checkpoint_is_published,
        "killed-at-each-step-of-a-rescale",
        r"the rescale is restarting, and the event 'not taken' cannot come then",
    ),
    (seats_stay_when_slots_go, "rescales-follow-each-other", r"seats that nobody needs have stayed"),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patch(place: Any, attribute: str, value: Any) -> None:
        monkeypatch.setattr(place, attribute, value, raising=hasattr(place, attribute))

    mutant(patch)
    assert_found(where, violation)
