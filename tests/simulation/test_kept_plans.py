"""Plans of failures that random seeds once found: they run in this version, and see the rule that was broken then.

Each was made by `--shrink`. A plan fixes the job and its faults; when what happens is drawn otherwise, because the
runtime has changed, another seed of the world sees the failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.jobmaster.job_ending import JobEnding
from penstock.protocol.channel import ends, watermark_valve
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.driver.slots import SlotProcesses
from penstock.protocol.log.retention import Retention
from penstock.protocol.restore import rescale
from penstock.protocol.values.metadata import ChannelTime
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.turns import Turns
from penstock.state.chains import Chain, Chains
from simulation.checkers import log_checker
from simulation.cluster.cluster import Cluster
from simulation.faults.user_orders import Patience, RescaleOrders
from simulation.plans.plan import read_plan
from simulation.plans.running import run_plan
from simulation.processes.present_job import PresentJob
from tests.simulation.proofs import breaks
from tests.simulation.test_adaptive_mutants import (
    a_spare_counts_among_those_that_must_connect,
    an_adaptive_job_has_deadlines_after_its_end,
    slots_that_a_user_gives_up_are_still_asked_for,
)
from tests.simulation.test_concurrent_mutants import a_restart_does_not_wait_for_queued_publications
from tests.simulation.test_graph_and_time_mutants import idle_timers_count_the_time_of_draining
from tests.simulation.test_rescaling_mutants import held_rows_leave_behind_the_report
from tests.simulation.test_revocation_mutants import a_slot_forgets_whom_it_waits_for
from tests.simulation.test_savepoint_mutants import (
    a_failed_stop_resumes_out_of_its_turn,
    a_stop_is_published_although_the_job_restarts,
    checkpoints_are_triggered_behind_the_end_of_sources,
)

PLANS = Path(__file__).parent / "plans"
WORLD_SEEDS = range(100)


@breaks("11.23d")
def a_fenced_driver_reports_the_errors_of_its_slots(patch: Any) -> None:
    patch(JobEnding, "_with_loss", lambda ending, error: error)


def an_adaptive_job_may_not_grow(patch: Any) -> None:
    """Without this: a job whose processes came one after the other failed its run, which had no faults."""
    patch(Cluster, "_moves", lambda cluster: 0)


@breaks("3.8d")
def what_is_claimed_goes_at_any_end(patch: Any) -> None:
    patch(Retention, "take_claim_at_end", lambda retention, has_checkpoints: retention.claimed)


def what_a_killed_successor_has_left_counts_as_an_orphan(patch: Any) -> None:
    """Without this: a driver that had slept through its job's end failed its run for what its successor, which was
    killed behind its entry, had not deleted yet."""
    patch(PresentJob, "has_lost_its_owner", False)


@breaks("5.2b")
def the_last_watermark_of_one_starts_a_channel(patch: Any) -> None:
    """Ignore those that have finished, but not those that are about to."""

    def among_unfinished(producers: Any) -> ChannelTime:
        unfinished = [p for p in producers if not p.finished]
        telling = [p for p in unfinished if not p.idle] or unfinished
        return ChannelTime(min((p.watermark_ms or WATERMARK_MIN_MS for p in telling), default=WATERMARK_MIN_MS))

    patch(rescale, "live_start", among_unfinished)


@breaks("5.2c")
def idle_layers_hold_nothing_back(patch: Any) -> None:
    patch(watermark_valve._Channel, "lets_time_pass", property(lambda channel: channel.idle))


@breaks("5.8b")
def the_last_watermark_takes_the_place_of_the_one_before(patch: Any) -> None:
    """Merge it like others: who reads it has not heard of the time before the end, and its neighbour has."""
    patch(ends, "WATERMARK_MAX_MS", None)


@breaks("3.3c")
def nothing_is_reported_between_barriers(patch: Any) -> None:
    """Report to whoever waits for the end of draining when nothing at all is left to do."""
    take_input, report_empty = Subtask._take_input, Subtask._report_empty
    between: list[Subtask] = []

    def taking(subtask: Subtask) -> float | None:
        between.append(subtask)
        try:
            return take_input(subtask)
        finally:
            between.pop()

    def unless_between(subtask: Subtask) -> None:
        if not between:
            report_empty(subtask)

    patch(Subtask, "_take_input", taking)
    patch(Subtask, "_report_empty", unless_between)


@breaks("5.1b")
def barriers_keep_time_from_advancing(patch: Any) -> None:
    """Take every barrier that is there before the watermark is passed on."""
    patch(Turns, "take_barrier", lambda turns, take: take())


def programs_of_all_drivers_are_the_newest(patch: Any) -> None:
    """Without this: a driver whose program is older than the newest checkpoint, and that is refused, failed its run."""
    patch(PresentJob, "declares_older_types", lambda job, driver, error: False)


def nobody_gives_checkpoints_more_time(patch: Any) -> None:
    """Without this: a job that waited for a checkpoint, none of which had enough time, failed its run."""
    patch(Patience, "on_aborted", lambda patience, reason, is_alone: None)


def whoever_is_told_to_rescale_runs_the_present_job(patch: Any) -> None:
    """Without this: an order that came late to a driver whose job had been stopped with a savepoint failed its run."""
    order = RescaleOrders.order

    def trusting(orders: RescaleOrders, driver: Any) -> None:
        log = orders._cluster.job.log
        assert log is None or driver.host.incarnation in log.candidates
        order(orders, driver)

    patch(RescaleOrders, "order", trusting)


def no_first_step_of_a_restore_has_fewer_slots(patch: Any) -> None:
    """Without this: the checker compared a checkpoint of an adaptive job's restore with a graph that nobody ran."""
    patch(log_checker, "rescaled", lambda graph, before, slots: graph)


@breaks("11.22c")
def what_was_consolidated_counts_behind_a_whole_state(patch: Any) -> None:
    """Let a state that was stored whole have begun long ago, so that what is older may be put in its place."""
    with_consolidated = Chains._with_consolidated

    def of_old(chains: Chains, name: Any, chain: Chain, predecessor_id: int, checkpoint_id: int) -> Chain:
        return with_consolidated(chains, name, replace(chain, whole_at=-1), predecessor_id, checkpoint_id)

    patch(Chains, "_with_consolidated", of_old)


def nobody_submits_the_slots_of_a_first_step(patch: Any) -> None:
    """Without this: an adaptive job that was short of slots waited for those of its checkpoint, which nobody made."""
    resize = Lifecycle.resize

    def without_providing(life: Any, slots: int, now_ms: float) -> Any:
        life.provide = lambda slots: []
        try:
            return resize(life, slots, now_ms)
        finally:
            del life.provide

    patch(Lifecycle, "resize", without_providing)


def the_silence_of_a_slot_is_a_difference(patch: Any) -> None:
    """Subtract the time of the last heartbeat: that is rounded otherwise than the sum that the driver waits for."""
    why_late = SlotProcesses.why_late

    def measured(processes: SlotProcesses, process: str, now_ms: float) -> str | None:
        silent_ms = now_ms - processes.players[process].heard_ms
        return why_late(processes, process, now_ms) if silent_ms >= processes._heartbeat_timeout_ms else None

    patch(SlotProcesses, "why_late", measured)


KEPT: dict[str, tuple[Callable[[Any], None], str]] = {
    # file: (what was wrong, the violation that it causes)
    "adaptive-job-grows.json": (an_adaptive_job_may_not_grow, r"1 restarts after 0 faults"),
    "cancelled-before-the-first-checkpoint.json": (what_is_claimed_goes_at_any_end, r"is deleted, and nothing is left"),
    "checkpoints-get-too-little-time.json": (nobody_gives_checkpoints_more_time, r"no end after"),
    "barriers-come-without-a-pause.json": (nothing_is_reported_between_barriers, r"no end after"),
    "barriers-hold-time-back.json": (barriers_keep_time_from_advancing, r"no end after"),
    "first-step-in-more-slots.json": (
        nobody_submits_the_slots_of_a_first_step,
        r"slot\(s\), of which 2 registered within",
    ),
    "older-program-owns-the-log.json": (programs_of_all_drivers_are_the_newest, r"is declared as value state of BYTE"),
    "producer-is-about-to-end.json": (the_last_watermark_of_one_starts_a_channel, r"sink 0: \d+ rows lost"),
    "drain-fails.json": (
        checkpoints_are_triggered_behind_the_end_of_sources,
        r"[1-9]\d* rows lost|final state of",
    ),
    "ended-while-slots-are-missing.json": (an_adaptive_job_has_deadlines_after_its_end, r"each time too early"),
    "first-step-with-fewer-slots.json": (
        no_first_step_of_a_restore_has_fewer_slots,
        r"no checkpoint in the log says so|is not a snapshot|not a snapshot of each subtask",
    ),
    "fenced-by-a-checkpoint.json": (
        a_fenced_driver_reports_the_errors_of_its_slots,
        r"was fenced, and says something else",
    ),
    "last-watermark-is-merged.json": (
        the_last_watermark_takes_the_place_of_the_one_before,
        r"is late: the watermark is",
    ),
    "idle-layer-of-two.json": (idle_layers_hold_nothing_back, r"is late: the watermark is"),
    "held-while-draining.json": (held_rows_leave_behind_the_report, r"no end after"),
    "idle-while-draining.json": (idle_timers_count_the_time_of_draining, r"is late: the watermark is"),
    "published-below-a-restart.json": (
        a_restart_does_not_wait_for_queued_publications,
        r"[1-9]\d* too many|the segment is missing",
    ),
    "left-before-its-threads.json": (
        a_slot_forgets_whom_it_waits_for,
        r"runs in generation .*, which the process has left|a handle of state works",
    ),
    "rescale-reaches-the-job-before.json": (
        whoever_is_told_to_rescale_runs_the_present_job,
        r"^raised",
    ),
    "slept-over-the-end.json": (
        a_fenced_driver_reports_the_errors_of_its_slots,
        r"was fenced, and says something else",
    ),
    "slots-are-given-up.json": (
        slots_that_a_user_gives_up_are_still_asked_for,
        r"seats that nobody needs have stayed",
    ),
    "spare-is-waited-for.json": (a_spare_counts_among_those_that_must_connect, r"no end after"),
    "stored-whole-behind-what-was-consolidated.json": (
        what_was_consolidated_counts_behind_a_whole_state,
        r"fired after that of|fired twice|rows lost|too many",
    ),
    "stop-is-written-while-the-job-fails.json": (
        a_stop_is_published_although_the_job_restarts,
        r"the event 'finished' cannot come then",
    ),
    "successor-dies-behind-its-own-end.json": (
        what_a_killed_successor_has_left_counts_as_an_orphan,
        r"orphan after the sweep",
    ),
    "woken-at-the-deadline.json": (the_silence_of_a_slot_is_a_difference, r"each time too early"),
    "stop-fails-inside-a-row.json": (a_failed_stop_resumes_out_of_its_turn, r"no end after|nothing will ever happen"),
}


def test_each_kept_plan_has_its_failure() -> None:
    assert {path.name for path in PLANS.glob("*")} == set(KEPT)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_kept_plan_violates_nothing(name: str) -> None:
    plan = read_plan(PLANS / name)
    for world_seed in (plan.world_seed, *WORLD_SEEDS[:4]):
        verdict = run_plan(msgspec.structs.replace(plan, world_seed=world_seed))
        assert not verdict.violations, f"world seed {world_seed}: {verdict.violations}"


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_kept_plan_sees_what_was_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, violation = KEPT[name]

    def patch(place: Any, attribute: str, value: Any) -> None:
        monkeypatch.setattr(place, attribute, value, raising=hasattr(place, attribute))

    mutant(patch)
    plan = read_plan(PLANS / name)
    found: list[str] = []
    for world_seed in (plan.world_seed, *WORLD_SEEDS):
        found += run_plan(msgspec.structs.replace(plan, world_seed=world_seed)).violations
        if any(re.search(violation, text) for text in found):
            return
    pytest.fail(f"nobody has noticed it: {found[:3]}")
