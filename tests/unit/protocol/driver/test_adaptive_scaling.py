"""Tests the adaptive scheduler: when a job starts in fewer slots, and when it gets more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.adaptive_scaling import (
    RETRY_MS_MIN,
    AdaptivePhase,
    AdaptiveScaling,
    AdaptiveSettings,
    Lower,
    Lowered,
    Raise,
    Resources,
)

SETTINGS = AdaptiveSettings(settle_ms=100.0, stabilize_ms=400.0, cooldown_ms=200.0)
SHORT = Resources(None, is_short=True, is_prepared=True, slots=4, wanted=4, processes=2)
COMPLETE = replace(SHORT, is_short=False, processes=4)
RUNNING = replace(COMPLETE, generation=1, is_prepared=False)


def lowered(slots: int) -> AdaptiveScaling:
    """A job that runs in so many of four slots, from 200 ms on."""
    machine = AdaptiveScaling(SETTINGS)
    machine.look(replace(SHORT, processes=slots), 0.0)
    assert machine.look(replace(SHORT, processes=slots), 100.0) == [Lower(slots, 100.0)]
    machine.look(replace(COMPLETE, slots=slots, processes=slots), 110.0)
    assert machine.look(replace(RUNNING, slots=slots, processes=slots), 200.0) == [Lowered(100.0, 100.0)]
    return machine


def test_it_waits_until_those_that_are_there_have_been_enough_for_a_while() -> None:
    machine = AdaptiveScaling(SETTINGS)
    assert machine.look(replace(SHORT, processes=0), 0.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(replace(SHORT, processes=1), 50.0) == [] and machine.next_deadline_ms() == 150.0
    assert machine.look(SHORT, 149.0) == [] and machine.phase is AdaptivePhase.SETTLING
    assert machine.look(SHORT, 150.0) == [Lower(2, 100.0)]


def test_all_that_it_wants_come_in_time() -> None:
    machine = AdaptiveScaling(SETTINGS)
    machine.look(SHORT, 0.0)
    assert machine.look(COMPLETE, 99.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(SHORT, 120.0) == [] and machine.next_deadline_ms() == 220.0, "it waits again as long"


def test_it_does_not_wait_if_nobody_else_can_come() -> None:
    assert AdaptiveScaling(SETTINGS).look(replace(SHORT, may_come=False), 0.0) == [Lower(2, 0.0)]


def test_it_starts_with_what_it_has_when_the_limit_for_all_is_over() -> None:
    machine = AdaptiveScaling(SETTINGS)
    assert machine.look(replace(SHORT, gather_by_ms=30.0), 0.0) == [] and machine.next_deadline_ms() == 30.0
    assert machine.look(replace(SHORT, gather_by_ms=30.0), 30.0) == [Lower(2, 30.0)]


def test_it_is_not_lowered_before_it_is_known_what_is_restored() -> None:
    machine = AdaptiveScaling(SETTINGS)
    assert machine.look(replace(SHORT, is_prepared=False), 0.0) == []
    assert machine.look(replace(SHORT, is_prepared=False), 500.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(SHORT, 510.0) == [Lower(2, 510.0)], "the time has passed meanwhile"


def test_a_further_loss_while_it_starts_is_waited_for_again() -> None:
    machine = AdaptiveScaling(SETTINGS)
    machine.look(SHORT, 0.0)
    machine.look(SHORT, 100.0)
    assert machine.look(replace(SHORT, slots=2, processes=1), 150.0) == []
    assert machine.look(replace(SHORT, slots=2, processes=1), 250.0) == [Lower(1, 100.0)]


def test_processes_share_what_cannot_be_restored_in_fewer_slots() -> None:
    machine = AdaptiveScaling(SETTINGS)
    machine.look(SHORT, 0.0)
    machine.look(SHORT, 100.0)
    machine.on_not_lowered(100.0)
    assert machine.may_share and machine.look(replace(SHORT, processes=1), 500.0) == []


def test_it_waits_for_as_many_as_its_user_says_and_lets_none_play_two() -> None:
    machine = AdaptiveScaling(replace(SETTINGS, least=3))
    for hopeless in (replace(SHORT, gather_by_ms=50.0), replace(SHORT, may_come=False)):
        assert machine.look(hopeless, 100.0) == [] and machine.next_deadline_ms() is None
        assert machine.phase is AdaptivePhase.GATHERING and not machine.may_share
    assert machine.look(replace(SHORT, processes=3), 200.0) == [] and machine.next_deadline_ms() == 300.0
    assert machine.look(replace(SHORT, processes=3), 300.0) == [Lower(3, 100.0)]
    machine.look(replace(COMPLETE, slots=3, processes=3), 310.0)
    machine.look(replace(RUNNING, slots=3, processes=3), 400.0)
    assert machine.look(replace(SHORT, slots=3), 500.0) == [] and machine.next_deadline_ms() is None, "one is lost"


def test_what_a_job_does_not_want_it_does_not_wait_for() -> None:
    machine, two = AdaptiveScaling(replace(SETTINGS, least=3)), replace(SHORT, slots=3, wanted=2)
    assert machine.look(replace(two, processes=1), 0.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(two, 10.0) == [] and machine.look(two, 110.0) == [Lower(2, 100.0)]


def test_it_is_raised_at_once_when_all_have_come() -> None:
    assert lowered(2).look(replace(RUNNING, slots=2), 500.0) == [Raise(4)]


def test_it_waits_for_the_others_when_some_have_come() -> None:
    machine, some = lowered(2), replace(RUNNING, slots=2, processes=3)
    assert machine.look(some, 500.0) == [] and machine.phase is AdaptivePhase.STABILIZING
    assert machine.next_deadline_ms() == 900.0 and machine.look(some, 899.0) == []
    assert machine.look(some, 900.0) == [Raise(3)] and machine.look(some, 5_000.0) == [], "one order at a time"
    machine.on_raised(True, 5_000.0)
    assert machine.look(replace(RUNNING, slots=3, processes=3), 5_000.0) == []
    assert machine.look(replace(RUNNING, slots=3), 5_100.0) == [] and machine.next_deadline_ms() == 5_200.0, "it rests"
    assert machine.look(replace(RUNNING, slots=3), 5_200.0) == [Raise(4)]


def test_the_wait_counts_from_the_first_that_has_come_also_while_the_job_rests() -> None:
    machine, some = lowered(1), replace(RUNNING, slots=1, processes=2)
    assert machine.look(some, 250.0) == [] and machine.next_deadline_ms() == 400.0
    assert machine.look(replace(some, processes=3), 400.0) == [] and machine.next_deadline_ms() == 650.0
    assert machine.look(replace(some, processes=3), 650.0) == [Raise(3)]


def test_who_leaves_again_is_not_waited_for() -> None:
    machine, some = lowered(2), replace(RUNNING, slots=2, processes=3)
    machine.look(some, 500.0)
    assert machine.look(replace(some, processes=2), 600.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(some, 950.0) == [] and machine.next_deadline_ms() == 1_350.0


def test_a_failed_rescale_is_tried_again_after_a_while() -> None:
    machine, all_there = lowered(2), replace(RUNNING, slots=2)
    machine.look(all_there, 500.0)
    machine.on_raised(False, 600.0)
    assert machine.look(all_there, 600.0) == [] and machine.next_deadline_ms() == 600.0 + RETRY_MS_MIN
    assert machine.look(all_there, 600.0 + RETRY_MS_MIN) == [Raise(4)]


def test_a_user_s_rescale_is_left_alone_and_so_is_a_job_without_checkpoints() -> None:
    machine, asked = lowered(2), replace(RUNNING, slots=2, is_rescaled=True)
    assert machine.look(asked, 900.0) == [] and machine.next_deadline_ms() is None
    assert machine.look(replace(asked, is_rescaled=False), 901.0) == [Raise(4)]
    machine = AdaptiveScaling(replace(SETTINGS, may_raise=False))
    assert machine.look(replace(RUNNING, slots=2), 900.0) == [] and machine.next_deadline_ms() is None


RESOURCES = st.builds(
    Resources,
    st.sampled_from((None, None, 1, 2, 3)),
    st.booleans(),
    st.booleans(),
    slots=st.integers(1, 4),
    wanted=st.integers(1, 4),
    processes=st.integers(0, 6),
    may_come=st.booleans(),
    gather_by_ms=st.sampled_from((50.0, 300.0, 1e9)),
    is_rescaled=st.booleans(),
)


@given(st.lists(st.tuples(RESOURCES, st.floats(0.0, 300.0), st.booleans()), max_size=30), st.integers(1, 3))
def test_whatever_comes_it_stays_within_what_there_is_and_asks_for_no_time_of_the_past(
    events: list[tuple[Resources, float, bool]], least: int
) -> None:
    machine, now_ms, ordered = AdaptiveScaling(replace(SETTINGS, least=least)), 0.0, False
    for now, passed_ms, is_done in events:
        now_ms += passed_ms
        for effect in machine.look(now, now_ms):
            if isinstance(effect, Lower):
                assert now.is_short and now.is_prepared and now.generation is None and now.processes > 0
                assert min(least, now.wanted) <= effect.slots < now.slots and effect.slots <= now.processes
                if is_done:
                    machine.on_not_lowered(now_ms)
            elif isinstance(effect, Raise):
                assert now.generation is not None and not ordered and not now.is_rescaled
                assert now.slots < effect.slots <= min(now.processes, now.wanted)
                ordered = True
        if ordered and is_done:
            machine.on_raised(now.slots > 2, now_ms)
            ordered = False
        deadline_ms = machine.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > now_ms
