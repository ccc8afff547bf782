"""Tests a job that loses slots in any phase: restarts, their delays, silent slots, and those that come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.driver_effects import (
    CancelGeneration,
    CloseLink,
    Deploy,
    FailureCause,
    GenerationEnded,
    Prepare,
    Restarting,
    ResubmitSlot,
    SlotsGone,
)
from penstock.protocol.driver.lifecycle import Lifecycle, Phase
from penstock.protocol.driver.restarts import FixedDelay, NoRestart
from tests.unit.protocol.driver.started_lifecycle import (
    G1,
    G2,
    deployed,
    of,
    only,
    register,
    run,
    running,
)


@pytest.mark.parametrize("phase", [Phase.CONNECTING, Phase.RESTORING, Phase.RUNNING])
def test_a_loss_in_any_phase_starts_the_next_generation_at_once(phase: Phase) -> None:
    life = deployed()
    if phase is not Phase.CONNECTING:
        life.on_connected("p0", G1, 3.0)
        life.on_connected("p1", G1, 3.0)
    if phase is Phase.RUNNING:
        life.on_restored("p0", G1, 3.0)
        life.on_restored("p1", G1, 3.0)
    assert life.phase is phase
    effects = life.on_link_lost("p1", "", 10.0)
    assert of(Restarting, effects)[0].delay_ms == 0.0
    assert of(CancelGeneration, effects) == [CancelGeneration(G1, "p0")]
    assert effects[-1] == Prepare()
    assert life.on_prepared(0, 10.0) == []
    assert life.on_register(register(1, "p1b", submission=2), 11.0) == [], "the survivor has not let go yet"
    (deploy,) = life.on_left("p0", G1, 12.0)
    assert deploy == Deploy(G2, (register(0, "p0"), register(1, "p1b", submission=2)))
    run(life, G2, 13.0)
    assert life.state == "RUNNING"


def test_a_loss_while_slots_gather_is_no_failure() -> None:
    life = running(FixedDelay(1, 0.0))
    life.on_link_lost("p0", "", 10.0)
    life.on_link_lost("p1", "", 10.0)
    assert life.restarts.failures == 1 and life.restarts.count == 1
    life.on_prepared(0, 10.0)
    life.on_register(register(0, "p0b", 2), 11.0)
    assert of(Deploy, life.on_register(register(1, "p1b", 2), 11.0))


def test_the_delay_of_the_restart_strategy_is_kept() -> None:
    life = running(FixedDelay(1, 500.0))
    life.on_link_lost("p1", "", 10.0)
    life.on_left("p0", G1, 11.0)
    life.on_register(register(1, "p1b", 2), 12.0)
    assert life.next_deadline_ms() == 510.0
    assert life.on_time(509.0) == []
    assert life.on_time(510.0) == [Prepare()]
    assert of(Deploy, life.on_prepared(0, 511.0))


def test_a_restart_that_cannot_be_prepared_waits_for_its_delay_like_any_other() -> None:
    life = running(FixedDelay(3, 500.0))
    assert Prepare() not in life.on_link_lost("p1", "", 10.0), "not before the delay is over"
    for attempt, now_ms in enumerate((510.0, 1010.0, 1510.0)):
        assert life.on_time(now_ms - 1.0) == []
        assert life.on_time(now_ms) == [Prepare()]
        effects = life.on_failure(None, FailureCause("storage is away"), now_ms)
        assert Prepare() not in effects
        assert (attempt < 2) == bool(of(Restarting, effects))
    assert life.is_over and life.restarts.failures == 4


def test_a_planned_restart_does_not_cut_short_the_delay_of_a_failure() -> None:
    life = running(FixedDelay(3, 500.0))
    life.on_link_lost("p1", "", 10.0)
    (told,) = of(Restarting, life.on_failure(None, FailureCause("a place is free", planned=True), 110.0))
    assert told.delay_ms == 400.0 and life.next_deadline_ms() == 510.0


def test_what_an_older_preparation_found_out_is_not_deployed() -> None:
    life = running(FixedDelay(3, 500.0))
    life.on_link_lost("p1", "", 10.0)
    life.on_left("p0", G1, 11.0)
    life.on_register(register(1, "p1b", 2), 12.0)
    assert life.on_prepared(0, 13.0) == [], "nobody was asked to prepare"
    assert life.on_time(510.0) == [Prepare()]


def test_no_deadline_lies_in_the_past_while_survivors_let_go() -> None:
    life = running()
    life.on_link_lost("p1", "", 10.0)
    life.on_prepared(0, 10.0)
    life.on_register(register(1, "p1b", 2), 11.0)
    life.on_time(11.0)
    deadline_ms = life.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms > 11.0


def test_nothing_is_deployed_before_it_is_known_what_to_restore() -> None:
    life = running()
    life.on_link_lost("p1", "", 10.0)
    life.on_left("p0", G1, 11.0)
    assert life.on_register(register(1, "p1b", 2), 12.0) == []
    assert of(Deploy, life.on_prepared(0, 13.0))


def test_a_silent_slot_is_lost_and_submitted_again() -> None:
    life = running(heartbeat_timeout_ms=100.0)
    life.processes.on_heard("p0", 50.0)
    assert life.next_deadline_ms() == 102.0
    effects = life.on_time(102.0)
    assert of(CloseLink, effects) == [CloseLink("p1")]
    assert of(ResubmitSlot, effects) == [ResubmitSlot(1)]
    assert "heartbeat.timeout" in of(GenerationEnded, effects)[0].cause


def test_a_driver_that_slept_itself_does_not_give_up_its_slots() -> None:
    life = running(heartbeat_timeout_ms=100.0)
    assert life.on_time(5000.0) == []
    life.processes.on_heard("p0", 5001.0)
    assert of(CloseLink, life.on_time(5100.0)) == [CloseLink("p1")], "but who stays silent is lost"


def test_a_slot_that_does_not_let_go_is_submitted_again() -> None:
    life = running(cancellation_timeout_ms=100.0, heartbeat_timeout_ms=1e9)
    life.on_link_lost("p1", "", 10.0)
    life.on_prepared(0, 10.0)
    life.on_register(register(1, "p1b", 2), 11.0)
    effects = life.on_time(110.0)
    assert effects == [CloseLink("p0"), ResubmitSlot(0)]
    assert life.restarts.failures == 1
    assert of(Deploy, life.on_register(register(0, "p0b", 2), 120.0))


def test_a_slot_that_does_not_come_back_is_submitted_again() -> None:
    life = running(heartbeat_timeout_ms=1000.0)
    life.on_link_lost("p1", "", 10.0)
    life.on_left("p0", G1, 11.0)
    life.on_prepared(0, 11.0)
    assert of(ResubmitSlot, life.on_time(1009.0)) == []
    assert life.on_time(1010.0) == [ResubmitSlot(1)]
    assert life.on_time(1011.0) == []


def test_a_slot_that_leaves_by_itself_is_lost() -> None:
    life = running()
    assert "has left" in of(GenerationEnded, life.on_left("p1", G1, 10.0))[0].cause


def test_slots_that_cannot_reach_each_other_are_named() -> None:
    life = deployed(heartbeat_timeout_ms=100.0)
    life.on_connected("p0", G1, 50.0)
    life.processes.on_heard("p0", 90.0)
    life.processes.on_heard("p1", 90.0)
    (ended,) = of(GenerationEnded, life.on_time(102.0))
    assert "1 (host:5000)" in ended.cause and "taskmanager.data.bind-port" in ended.cause


def failed_by_a_lost_connection() -> Lifecycle:
    life = running(NoRestart())
    lost = FailureCause("slot 0 lost its connection to slot 1: reset", slot_lost=True, lost_peer=1)
    life.on_failure(G1, lost, 10.0)
    return life


def test_how_a_process_ended_is_told_though_its_peers_were_faster() -> None:
    life = failed_by_a_lost_connection()
    life.on_link_lost("p1", "its process 17 exited with code 3", 11.0)
    gone = only(SlotsGone, life.on_left("p0", G1, 12.0))
    assert gone.state == "FAILED" and gone.error is not None
    assert gone.error.startswith("slot 1 was lost: its process 17 exited with code 3\nThe job has failed: this was the")


def test_a_lost_connection_is_not_blamed_on_a_process_that_leaves_when_told() -> None:
    life = failed_by_a_lost_connection()
    life.on_left("p1", G1, 11.0)
    gone = only(SlotsGone, life.on_link_lost("p0", "its process 16 exited with code 1", 12.0))
    assert gone.error is not None and gone.error.startswith("slot 0 lost its connection to slot 1: reset\n")


def test_a_process_that_a_lowered_job_keeps_as_a_spare_is_not_waited_for() -> None:
    life = running(FixedDelay(9, 0.0))
    life.roster.kept_slots = 2
    life.on_failure(G1, FailureCause("boom"), 10.0)
    life.on_left("p0", G1, 11.0)
    life.resize(1, 12.0)
    assert of(Deploy, life.on_prepared(0, 13.0)) == [], "p1 may still hold what it has played before"
    assert only(Deploy, life.on_left("p1", G1, 14.0)).members == (register(0, "p0"),)
    run(life, G2, 15.0)
    assert life.on_link_lost("p1", "killed", 20.0) == [], "a spare is no part of the generation"


def test_a_spare_that_does_not_let_go_is_submitted_again() -> None:
    life = running(FixedDelay(9, 0.0), cancellation_timeout_ms=500.0)
    life.roster.kept_slots = 2
    life.on_failure(G1, FailureCause("boom"), 10.0)
    life.on_left("p0", G1, 11.0)
    life.resize(1, 12.0)
    life.on_prepared(0, 13.0)
    effects = life.on_time(510.0)
    assert effects == [CloseLink("p1"), ResubmitSlot(1), Deploy(G2, (register(0, "p0"),))]
    assert (life.next_deadline_ms() or 1e9) > 510.0


@given(st.floats(10.0, 1e9), st.floats(1.0, 1e6))
def test_a_silent_slot_is_given_up_at_its_deadline_however_sums_are_rounded(heard_ms: float, timeout_ms: float) -> None:
    life = running(heartbeat_timeout_ms=timeout_ms)
    for process in ("p0", "p1"):
        life.processes.on_heard(process, heard_ms)
    deadline_ms = life.processes.next_deadline_ms()
    assert deadline_ms is not None
    assert of(Restarting, life.on_time(deadline_ms))


@given(st.floats(10.0, 1e9), st.floats(1.0, 1e6))
def test_a_missing_slot_is_submitted_again_at_its_deadline_however_sums_are_rounded(
    lost_ms: float, timeout_ms: float
) -> None:
    life = running(heartbeat_timeout_ms=timeout_ms)
    life.on_link_lost("p0", "", lost_ms)
    life.on_link_lost("p1", "", lost_ms)
    deadline_ms = life.processes.next_deadline_ms()
    assert deadline_ms is not None
    assert of(ResubmitSlot, life.on_time(deadline_ms))
