"""The simulation finds broken rules of jobs that run in as many slots as there are places for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.graph.fit import Fit, fitted
from penstock.jobmaster import job_recovery, rescales
from penstock.jobmaster.rescales import Rescales
from penstock.protocol.driver.adaptive_scaling import AdaptivePhase, AdaptiveScaling
from penstock.protocol.driver.driver_machine import DriverMachine
from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.driver.slots import SlotProcesses, SlotRoster
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


def with_settings(patch: Patch, **changed: float) -> None:
    begin = AdaptiveScaling.__init__
    patch(AdaptiveScaling, "__init__", lambda self, settings, story: begin(self, replace(settings, **changed), story))


@breaks("12.8a")
def an_adaptive_job_waits_for_all_its_slots(patch: Patch) -> None:
    def wait(self: Any, now: Any, now_ms: float) -> list[Any]:
        self.phase = AdaptivePhase.GATHERING
        return []

    patch(AdaptiveScaling, "_short", wait)


@breaks("12.8b")
def an_adaptive_job_does_not_wait(patch: Patch) -> None:
    with_settings(patch, settle_ms=0.0)


@breaks("12.8c")
def an_adaptive_job_runs_in_any_number_of_slots(patch: Patch) -> None:
    with_settings(patch, least=1)


@breaks("12.9")
def slots_are_lowered_whatever_is_restored(patch: Patch) -> None:
    patch(rescales, "fitted_in_steps", lambda graph, metadata, ignore, checkpointing: Fit(graph))


@breaks("12.9")
def a_checkpoint_of_fewer_slots_is_restored_in_all(patch: Patch) -> None:
    patch(job_recovery, "fitted_in_steps", lambda graph, metadata, *arguments: Fit(fitted(graph, metadata, False)))


@breaks("12.10a")
def seats_go_when_a_job_is_lowered(patch: Patch) -> None:
    resize = SlotRoster.resize

    def without_them(self: Any, slots: int) -> Any:
        self.kept_slots = 0
        return resize(self, slots)

    patch(SlotRoster, "resize", without_them)


@breaks("12.10b")
def each_place_is_a_rescale(patch: Patch) -> None:
    with_settings(patch, stabilize_ms=0.0)


@breaks("12.10c")
def a_spare_counts_among_those_that_must_connect(patch: Patch) -> None:
    patch(SlotProcesses, "_forget_if_spare", lambda self, process: None)


@breaks("12.10d")
def slots_that_a_user_gives_up_are_still_asked_for(patch: Patch) -> None:
    patch(Lifecycle, "release_unneeded", lambda self, now_ms: [])


@breaks("12.10b")
def rescales_follow_without_a_rest(patch: Patch) -> None:
    with_settings(patch, cooldown_ms=0.0)


def an_adaptive_job_has_deadlines_after_its_end(patch: Patch) -> None:
    patch(DriverMachine, "adaptive_deadline_ms", lambda self: self.adaptive and self.adaptive.next_deadline_ms())


@breaks("12.11")
def a_rescale_outlives_its_slots(patch: Patch) -> None:
    patch(Rescales, "on_lowered", lambda self, why: None)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (
        an_adaptive_job_waits_for_all_its_slots,
        "adaptive-job-starts-in-fewer-slots",
        r"the job does not begin in two slots",
    ),
    (
        an_adaptive_job_runs_in_any_number_of_slots,
        "adaptive-job-waits-for-its-least-slots",
        r"does not run in its least slots",
    ),
    (an_adaptive_job_does_not_wait, "adaptive-job-waits-for-a-process-that-comes-back", r"although every process"),
    (slots_are_lowered_whatever_is_restored, "checkpoint-needs-all-its-slots", r"[1-9]\d* rows lost|[1-9]\d* too many"),
    (a_checkpoint_of_fewer_slots_is_restored_in_all, "lowered-job-loses-its-driver", r"is refused for nothing"),
    (seats_go_when_a_job_is_lowered, "adaptive-job-starts-in-fewer-slots", r"does not get its third slot"),
    (each_place_is_a_rescale, "places-come-one-after-the-other", r"rescaled for each place that comes"),
    (rescales_follow_without_a_rest, "adaptive-job-rests-between-rescales", r"does not rest between two rescales"),
    (
        a_rescale_outlives_its_slots,
        "slot-is-lost-for-good-in-the-restart-of-a-rescale",
        r"is done, but the job does not run so",
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
