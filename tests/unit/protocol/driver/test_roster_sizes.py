"""Tests the roster with another number of slots: who goes, who stays, and that a process never has two places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.slots import Dismissed, Joined, RosterChange, SeatRetired, SlotRoster, SpareJoined
from tests.unit.protocol.driver.test_slot_roster import filled, register


def test_what_is_provided_stands_by_until_there_are_more_slots() -> None:
    roster = filled(2, 0)
    assert roster.provide(4) == [2, 3] and roster.provide(4) == []
    assert roster.register(register(3, "p3")) == [SpareJoined(3, "p3")]
    assert roster.resize(4) == [Joined(2, "p3")] and roster.missing == [3]
    assert roster.register(register(2, "p2")) == [Joined(3, "p2")]


def test_processes_of_slots_that_are_gone_leave_and_their_seats_go() -> None:
    roster = filled(3, 0)
    gone = Dismissed("p2", "the job was rescaled, and needs fewer slots", True)
    assert roster.resize(2) == [gone, SeatRetired(2)]
    assert roster.empty_seats == [] and roster.processes == ["p0", "p1"]
    (late,) = roster.register(register(2, "again", submission=2))
    assert isinstance(late, Dismissed) and late.planned
    assert roster.provide(3) == [2], "the number is used again"
    assert roster.register(register(2, "newer", submission=3)) == [SpareJoined(2, "newer")]


def test_they_take_the_place_of_missing_ones_first() -> None:
    roster = filled(3, 0)
    roster.lose("p0")
    assert roster.resize(2) == [Joined(0, "p2"), SeatRetired(0)]
    assert [(m.slot, m.process) for m in roster.members()] == [(0, "p2"), (1, "p1")]


def test_spares_stay() -> None:
    roster = filled(3, 1)
    gone = Dismissed("p2", "the job was rescaled, and needs fewer slots", True)
    assert roster.resize(2) == [gone, SeatRetired(2)] and [s.process for s in roster.spares] == ["p3"]


@given(
    st.integers(1, 3),
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from(["register", "lose", "provide", "resize"]), st.integers(0, 5)), max_size=40),
)
def test_whatever_happens_a_process_has_one_place_and_seats_are_as_many_as_are_needed(
    slots: int, spares: int, steps: list[tuple[str, int]]
) -> None:
    roster = SlotRoster(slots, spares)
    submissions: dict[int, int] = {}
    provided = slots
    for what, number in steps:
        changes: list[RosterChange] = []
        if what == "register":
            submissions[number] = submissions.get(number, 0) + 1
            changes = roster.register(register(number, f"p{number}.{submissions[number]}", submissions[number]))
        elif what == "lose" and number < len(roster.processes):
            changes = roster.lose(roster.processes[number])
        elif what == "provide":
            roster.provide(number + 1)
            provided = max(provided, number + 1)
        elif what == "resize":
            roster.provide(number + 1)
            changes = roster.resize(number + 1)
            provided = number + 1
        assert not {c.process for c in changes if isinstance(c, Dismissed)} & set(roster.processes)
        members, standing_by = roster.members(), [spare.process for spare in roster.spares]
        playing = [member.process for member in members]
        assert len(set(playing)) == len(playing) == roster.registered and not set(playing) & set(standing_by)
        assert {m.slot for m in members} | set(roster.missing) == set(range(roster.slots))
        assert not (roster.missing and standing_by), "a spare takes a missing slot's place"
        seats = {roster.seat_of(process) for process in [*playing, *standing_by]}
        assert len(seats) == len(playing) + len(standing_by)
        assert len(seats) + len(roster.empty_seats) == provided + spares
