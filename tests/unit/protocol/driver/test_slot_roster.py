"""Tests who plays which slot: seats, spares that take a lost slot's place, and processes that relieve living ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.driver_effects import AssignSpare, Deploy, Prepare, Restarting, SubmitSlot
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings, Phase
from penstock.protocol.driver.restarts import ExponentialDelay, NoRestart, RestartStrategy
from penstock.protocol.driver.slots import Dismissed, Joined, SlotLost, SlotRoster, SpareJoined
from penstock.protocol.values.messages import Register


def register(seat: int, process: str, submission: int = 1, relieves: bool = False) -> Register:
    return Register(seat, submission, 0, process, 100, "host", 5000, "3.11", "0", relieves)


def filled(slots: int = 2, spares: int = 1) -> SlotRoster:
    roster = SlotRoster(slots, spares)
    for seat in range(slots + spares):
        roster.register(register(seat, f"p{seat}"))
    return roster


def test_seats_play_the_slots_of_their_number_and_further_ones_stand_by() -> None:
    roster = SlotRoster(2, 1)
    assert roster.register(register(1, "p1")) == [Joined(1, "p1")]
    assert roster.register(register(0, "p0")) == [Joined(0, "p0")]
    assert roster.register(register(2, "p2")) == [SpareJoined(2, "p2")]
    assert [m.process for m in roster.members()] == ["p0", "p1"]
    assert [s.process for s in roster.spares] == ["p2"]


def test_a_spare_takes_the_lost_slot_at_once_and_who_comes_back_is_the_spare() -> None:
    roster = filled()
    assert roster.lose("p0") == [SlotLost(0, "p0"), Joined(0, "p2")]
    assert roster.missing == []
    assert [(m.slot, m.process) for m in roster.members()] == [(0, "p2"), (1, "p1")]
    assert roster.empty_seats == [0]
    assert roster.register(register(0, "back", submission=2)) == [SpareJoined(0, "back")]
    assert roster.lose("p1") == [SlotLost(1, "p1"), Joined(1, "back")]


def test_more_losses_than_spares_leave_slots_to_whoever_comes_first() -> None:
    roster = filled()
    roster.lose("p0")
    assert roster.lose("p1") == [SlotLost(1, "p1")]
    assert roster.missing == [1]
    assert roster.register(register(0, "back", submission=2)) == [Joined(1, "back")]
    assert roster.register(register(1, "again", submission=2)) == [SpareJoined(1, "again")]


def test_a_spare_that_is_lost_costs_nothing() -> None:
    roster = filled()
    assert roster.lose("p2") == []
    assert roster.lose("p0") == [SlotLost(0, "p0")]


def test_spares_that_come_first_play() -> None:
    """Starts the job with whoever is there first."""
    roster = SlotRoster(1, 1)
    assert roster.register(register(1, "spare")) == [Joined(0, "spare")]
    assert roster.register(register(0, "late")) == [SpareJoined(0, "late")]


def test_another_attempt_of_the_same_seat_goes_before_spares() -> None:
    roster = filled()
    assert roster.register(register(0, "copy")) == [SpareJoined(0, "copy")]
    assert roster.lose("p0") == [SlotLost(0, "p0"), Joined(0, "copy")]


def test_a_newer_submission_of_a_seat_takes_the_slot_that_its_process_plays() -> None:
    roster = filled()
    roster.lose("p0")  # p2 of seat 2 plays slot 0 now
    changes = roster.register(register(2, "newer", submission=2))
    assert changes == [Dismissed("p2", "slot 2 was submitted again meanwhile"), Joined(0, "newer", "p2")]
    assert roster.register(register(2, "older")) == [Dismissed("older", "slot 2 was submitted again meanwhile")]


def test_a_spare_that_is_submitted_again_stays_a_spare() -> None:
    roster = filled()
    changes = roster.register(register(2, "newer", submission=2))
    assert changes == [Dismissed("p2", "slot 2 was submitted again meanwhile"), SpareJoined(2, "newer")]


def test_a_slot_that_shares_a_process_is_taken_over_by_a_newer_submission_as_planned() -> None:
    roster = SlotRoster(2)
    roster.register(register(0, "p0"))
    roster.register(register(1, "p1"))
    roster.lose("p1")
    hosted = Register(1, 1, 0, "p0 too", 100, "host", 5000, "3.11", "0", hosted=True)
    assert roster.register(hosted) == [Joined(1, "p0 too")]
    changes = roster.register(register(1, "p1 again", submission=2))
    dismissed = Dismissed("p0 too", "slot 1 has a place of its own again", True)
    assert changes == [dismissed, Joined(1, "p1 again", "p0 too")]


def test_spares_with_a_process_of_their_own_are_called_first() -> None:
    roster = SlotRoster(1, 2)
    roster.register(register(0, "p0"))
    roster.register(Register(1, 0, 0, "shared", 100, "host", 5000, "3.11", "0", hosted=True))
    roster.register(register(2, "own"))
    assert [spare.process for spare in roster.spares] == ["own", "shared"]


# ---- in the life of a job ---------------------------------------------------------------------------------------


def running(strategy: RestartStrategy, spares: int) -> Lifecycle:
    life = Lifecycle(LifecycleSettings(2, spares=spares), strategy, lambda: 0.0)
    assert life.start(0.0) == [Prepare(), *(SubmitSlot(seat) for seat in range(2 + spares))]
    life.on_prepared(0, 0.0)
    for seat in range(2 + spares):
        effects = life.on_register(register(seat, f"p{seat}"), 1.0)
        assert seat < 2 or effects == [AssignSpare(f"p{seat}")]
    run(life)
    return life


def run(life: Lifecycle) -> None:
    generation = life.generation
    assert generation is not None
    for member in life.roster.members():
        life.on_connected(member.process, generation, 2.0)
    for member in life.roster.members():
        life.on_restored(member.process, generation, 3.0)
    assert life.phase is Phase.RUNNING


def test_with_a_spare_a_lost_slot_is_deployed_anew_as_soon_as_the_others_are_free() -> None:
    life = running(ExponentialDelay(), spares=1)
    generation = life.generation
    assert generation is not None
    life.on_link_lost("p0", "killed", 10.0)
    life.on_prepared(0, 11.0)
    deploy = [e for e in life.on_left("p1", generation, 12.0) if isinstance(e, Deploy)]
    assert [[(m.slot, m.process) for m in d.members] for d in deploy] == [[(0, "p2"), (1, "p1")]]


def test_a_planned_replacement_restarts_without_asking_the_restart_strategy() -> None:
    life = running(NoRestart(), spares=0)
    effects = life.on_register(register(1, "relief", submission=2, relieves=True), 10.0)
    restarting = [e for e in effects if isinstance(e, Restarting)]
    assert [(r.failures, r.delay_ms, r.cause.planned) for r in restarting] == [(0, 0.0, True)]
    assert "decommissioned" in restarting[0].cause.summary
    assert (life.restarts.failures, life.restarts.count, life.state) == (0, 1, "RESTARTING")


@given(st.lists(st.tuples(st.sampled_from(["register", "copy", "again", "lose"]), st.integers(0, 4)), max_size=60))
def test_no_process_plays_twice_and_no_spare_idles_beside_a_vacant_slot(steps: list[tuple[str, int]]) -> None:
    roster, submissions = SlotRoster(3, 2), [0] * 5
    alive: list[str] = []
    for made, (action, pick) in enumerate(steps):
        if action == "lose" and alive:
            roster.lose(alive.pop(pick % len(alive)))
        elif action != "lose":
            submissions[pick] += action == "again"
            changes = roster.register(register(pick, f"p{made}", submissions[pick]))
            gone = {change.process for change in changes if isinstance(change, Dismissed)}
            alive = [p for p in [*alive, f"p{made}"] if p not in gone]
        players = [m.process for m in roster.members()]
        assert len(players) == len(set(players)) and set(players) <= set(roster.processes) == set(alive)
        assert not (roster.missing and roster.spares)
        assert [m.slot for m in roster.members()] == [s for s in range(3) if s not in roster.missing]
        members = [roster.member(slot) for slot in range(3)]
        assert roster.registered == len(players)
        assert roster.missing == [slot for slot, member in enumerate(members) if member is None]
        assert roster.pids == [None if member is None else member.pid for member in members]
        assert {p: roster.plays(p) for p in alive} == {
            p: next((m.slot for m in roster.members() if m.process == p), None) for p in alive
        }
        holders = {seat: p for p in reversed(alive) if (seat := roster.seat_of(p)) is not None}
        idle = [p for p in holders.values() if p not in players]
        assert {s.process for s in roster.spares} <= set(idle)
        assert roster.registered == 3 or not idle
