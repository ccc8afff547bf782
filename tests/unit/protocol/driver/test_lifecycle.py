"""Tests the life of a job: rendezvous, phases, speculative copies, failures and ends."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.driver_effects import (
    AssignSpare,
    CancelGeneration,
    Deploy,
    Dismiss,
    FailureCause,
    GenerationEnded,
    Prepare,
    Restarting,
    SlotsGone,
    StartRestore,
    StartRun,
    SubmitSlot,
)
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.driver.restarts import NoRestart
from penstock.protocol.values.elements import Generation
from tests.unit.protocol.driver.started_lifecycle import (
    G1,
    deployed,
    gathered,
    lifecycle,
    of,
    only,
    register,
    run,
    running,
)

# ---- the way to running -----------------------------------------------------------------------------------------


def test_phases_are_counted_per_slot_process() -> None:
    life = lifecycle()
    assert life.start(0.0) == [Prepare(), SubmitSlot(0), SubmitSlot(1)]
    assert life.on_register(register(0, "p0"), 1.0) == []
    assert life.on_register(register(1, "p1"), 2.0) == []
    (deploy,) = life.on_prepared(0, 3.0)
    assert deploy == Deploy(G1, (register(0, "p0"), register(1, "p1")))
    assert life.on_connected("p0", G1, 4.0) == []
    assert life.on_connected("p0", G1, 4.0) == [], "said twice counts once"
    assert life.on_restored("p0", G1, 4.0) == [], "not its turn"
    assert life.on_connected("p1", G1, 5.0) == [StartRestore(G1)]
    assert life.on_restored("p1", G1, 6.0) == []
    assert life.on_restored("p0", G1, 7.0) == [StartRun(G1)]
    assert life.state == "RUNNING"


def test_messages_of_an_old_generation_do_not_count() -> None:
    life = deployed()
    assert life.on_connected("p0", Generation(0, 0), 3.0) == []
    life.on_connected("p1", G1, 3.0)
    assert life.phase is Phase.CONNECTING


def test_a_generation_starts_with_the_fence_of_the_driver() -> None:
    life = lifecycle()
    life.start(0.0)
    life.on_register(register(0, "p0"), 1.0)
    life.on_register(register(1, "p1"), 1.0)
    deploy = only(Deploy, life.on_prepared(7, 2.0))
    assert deploy.generation == Generation(7, 1) > Generation(6, 99)


def test_too_few_slots_fail_the_job_and_say_what_to_change() -> None:
    life = gathered(slot_request_timeout_ms=1000.0)
    assert life.next_deadline_ms() == 1000.0
    effects = life.on_time(1000.0)
    assert of(Dismiss, effects)
    gone = only(SlotsGone, life.on_link_lost("p0", "", 1001.0))
    assert gone.state == "FAILED"
    for word in ("needs 2 slot(s)", "1 registered within 1 s", "missing: 1", "parallelism", "slot.request.timeout"):
        assert word in str(gone.error)


def test_a_start_in_more_slots_submits_what_they_need() -> None:
    """An adaptive job that is short of slots restores a checkpoint of more slots than it wants, in two steps. Without
    this: it waits for a slot that nobody has submitted, until its time is over."""
    life = gathered()
    assert SubmitSlot(2) in life.resize(3, 2.0)
    assert not of(SubmitSlot, life.resize(2, 3.0)) and not of(SubmitSlot, life.resize(1, 4.0))


@pytest.mark.parametrize(("slots_min", "says"), [(2, ", or 2 at least (jobmanager.adaptive-"), (1, ""), (3, "")])
def test_too_few_slots_of_an_adaptive_job_are_fewer_than_its_least(slots_min: int, says: str) -> None:
    life = lifecycle(slots=3, slot_request_timeout_ms=1000.0, slots_min=slots_min)
    life.start(0.0)
    life.on_register(register(0, "p0"), 1.0)
    life.on_time(1000.0)
    told = str(only(SlotsGone, life.on_link_lost("p0", "", 1001.0)).error)
    assert f"the job needs 3 slot(s){says}" in told and ("at least" in told) == bool(says)
    assert (", lower jobmanager.adaptive-scheduler.min-parallelism, or raise" in told) == bool(says)


def test_a_driver_that_was_suspended_gives_slots_their_time_again() -> None:
    """It looks at the clock before it takes the registration that has come meanwhile."""
    life = gathered(slot_request_timeout_ms=1000.0)
    assert life.on_time(70_000.0) == [] and life.next_deadline_ms() == 71_000.0
    assert of(Deploy, life.on_register(register(1, "p1"), 70_000.0))
    waiting = gathered(slot_request_timeout_ms=1000.0)
    waiting.on_time(70_000.0)
    assert of(Dismiss, waiting.on_time(71_000.0)), "nobody comes"


def test_too_few_slots_after_it_has_run_is_a_failure_like_others() -> None:
    life = running(slot_request_timeout_ms=1000.0, heartbeat_timeout_ms=1e9)
    life.on_link_lost("p1", "", 10.0)
    life.on_left("p0", G1, 11.0)
    life.on_prepared(0, 11.0)
    (restarting,) = of(Restarting, life.on_time(1010.0))
    assert "registered within" in restarting.cause.summary and restarting.failures == 2


def test_storage_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    life = lifecycle(slot_request_timeout_ms=1000.0)
    life.start(0.0)
    life.on_register(register(0, "p0"), 1.0)
    life.on_register(register(1, "p1"), 1.0)
    assert life.next_deadline_ms() == 1000.0
    life.on_time(1000.0)
    life.on_link_lost("p0", "", 1001.0)
    gone = only(SlotsGone, life.on_link_lost("p1", "", 1001.0))
    assert gone.state == "FAILED" and "checkpoint storage" in str(gone.error)


# ---- who is slot 1 ----------------------------------------------------------------------------------------------


def test_a_speculative_copy_stands_by_and_takes_over_when_the_first_is_lost() -> None:
    """[A copy that returns makes Spark kill the good one; one that replaces it restarts the job again and again.]"""
    life = running()
    assert life.on_register(register(1, "copy", attempt=1), 5.0) == [AssignSpare("copy")]
    assert life.phase is Phase.RUNNING
    effects = life.on_link_lost("p1", "connection reset", 6.0)
    assert of(GenerationEnded, effects) == [GenerationEnded(G1, "slot 1 was lost: connection reset")]
    life.on_left("p0", G1, 7.0)
    deploy = only(Deploy, life.on_prepared(0, 7.0))
    assert [m.process for m in deploy.members] == ["p0", "copy"]


def test_within_a_submission_it_is_who_came_first_not_the_lower_attempt() -> None:
    life = gathered()
    life.on_register(register(1, "second", attempt=1), 2.0)
    assert life.on_register(register(1, "first", attempt=0), 3.0) == [AssignSpare("first")]
    assert life.phase is Phase.CONNECTING


def test_the_loss_of_one_that_stands_by_is_no_failure() -> None:
    life = running()
    life.on_register(register(1, "copy", attempt=1), 5.0)
    assert life.on_link_lost("copy", "", 6.0) == []
    assert life.phase is Phase.RUNNING and life.restarts.failures == 0


def test_the_newest_submission_plays_the_slot_and_older_ones_are_dismissed() -> None:
    life = running()
    life.on_register(register(1, "copy", attempt=1), 5.0)
    effects = life.on_register(register(1, "new", submission=2), 6.0)
    assert {d.process for d in of(Dismiss, effects)} == {"p1", "copy"}
    assert of(GenerationEnded, effects)
    assert of(Dismiss, life.on_register(register(1, "late", submission=1, attempt=2), 7.0))
    life.on_left("p0", G1, 8.0)
    deploy = only(Deploy, life.on_prepared(0, 8.0))
    assert [m.process for m in deploy.members] == ["p0", "new"]


def test_a_process_of_a_slot_that_the_job_does_not_have_is_dismissed() -> None:
    (dismiss,) = gathered().on_register(register(7, "p7"), 2.0)
    assert isinstance(dismiss, Dismiss) and "slots 0 to 1" in dismiss.message


# ---- failures of the job ----------------------------------------------------------------------------------------


def test_an_error_of_user_code_restarts_the_job_and_is_told_with_its_count() -> None:
    life = running()
    cause = FailureCause("map failed", "Traceback ...\nZeroDivisionError")
    effects = life.on_failure(G1, cause, 10.0)
    assert of(Restarting, effects) == [Restarting(cause, 1, 0.0)]
    assert {c.process for c in of(CancelGeneration, effects)} == {"p0", "p1"}
    assert life.on_failure(G1, cause, 11.0) == [], "what fails because of it does not count"


def test_exhausted_restarts_fail_the_job_with_the_users_traceback_first() -> None:
    life = running(NoRestart())
    life.on_failure(G1, FailureCause("map failed", "Traceback ...\nZeroDivisionError"), 10.0)
    life.on_link_lost("p0", "", 11.0)
    gone = only(SlotsGone, life.on_link_lost("p1", "", 12.0))
    assert gone.state == "FAILED" and life.state == "FAILED"
    assert gone.error is not None and gone.error.startswith("Traceback ...\nZeroDivisionError\nmap failed")
    assert "first failure" in gone.error and "restart-strategy.type" in gone.error


def test_what_a_restart_cannot_mend_is_not_restarted() -> None:
    life = running()
    effects = life.on_failure(G1, FailureCause("does not fit", restartable=False), 10.0)
    assert life.state == "FAILING" and not of(Restarting, effects)


def test_lost_slots_of_a_job_that_gets_on_restart_at_once_every_time() -> None:
    life = running()
    for i in range(5):
        life.restarts.on_checkpoint_completed()
        (restarting,) = of(Restarting, life.on_link_lost(f"p1{'b' * i}", "", 10.0 + i))
        assert restarting.delay_ms == 0.0
        generation = Generation(0, i + 1)
        life.on_left("p0", generation, 10.0 + i)
        life.on_prepared(0, 10.0 + i)
        life.on_register(register(1, f"p1{'b' * (i + 1)}", i + 2), 10.0 + i)
        run(life, Generation(0, i + 2), 10.0 + i)


# ---- ends -------------------------------------------------------------------------------------------------------


def test_cancel_tells_every_process_to_leave_and_waits_for_it() -> None:
    life = running()
    life.on_register(register(1, "copy", attempt=1), 5.0)
    effects = life.cancel(10.0)
    assert {d.process for d in of(Dismiss, effects)} == {"p0", "p1", "copy"}
    assert life.state == "CANCELLING"
    assert life.on_link_lost("p0", "", 11.0) == life.on_left("p1", G1, 11.0) == []
    assert life.on_link_lost("copy", "", 12.0) == [SlotsGone("CANCELED", None)]
    assert life.state == "CANCELED" and life.next_deadline_ms() is None


def test_slots_that_do_not_leave_are_not_waited_for_for_ever() -> None:
    life = running(leave_timeout_ms=100.0)
    life.finish(10.0)
    assert life.next_deadline_ms() == 110.0
    assert life.on_time(110.0) == [SlotsGone("FINISHED", None)]


def test_who_comes_after_the_end_is_dismissed() -> None:
    life = running()
    life.cancel(10.0)
    assert of(Dismiss, life.on_register(register(0, "late", 3), 11.0))


def test_once_the_final_checkpoint_is_there_losses_do_not_matter() -> None:
    life = running()
    life.on_finishing()
    assert life.on_link_lost("p1", "", 10.0) == []
    assert life.on_failure(G1, FailureCause("close() failed"), 11.0) == []
    life.finish(12.0)
    assert life.on_link_lost("p0", "", 13.0) == [SlotsGone("FINISHED", None)]


def test_cancel_before_any_slot_has_come() -> None:
    life = lifecycle()
    life.start(0.0)
    assert life.cancel(1.0) == [SlotsGone("CANCELED", None)]
