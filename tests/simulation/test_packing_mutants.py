"""Rules about slots that share a process are broken one at a time, and are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.driver.slot_packing import SlotPacking
from penstock.protocol.driver.slots import Joined, SlotRoster
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("12.4")
def slots_are_never_packed(patch: Patch) -> None:
    patch(SlotPacking, "_is_time", lambda self, life, now_ms: False)


@breaks("12.4")
def a_process_is_one_peer_whatever_it_plays(patch: Patch) -> None:
    """Slots of one process share the identity of their connections."""
    members = SlotRoster.members
    patch(SlotRoster, "members", lambda self: list({m.pid: m for m in members(self)}.values()))


@breaks("12.4")
def the_end_of_a_packed_slot_is_that_of_its_process(patch: Patch) -> None:
    register = SlotRoster.register

    def ends_its_neighbours(self: Any, new: Any) -> Any:
        before = self.members()
        changes = register(self, new)
        gone = {c.replaced for c in changes if isinstance(c, Joined) and c.replaced}
        pids = {m.pid for m in before if m.process in gone}
        for neighbour in [m for m in self.members() if m.pid in pids and not m.hosted]:
            changes += self.lose(neighbour.process)
        return changes

    patch(SlotRoster, "register", ends_its_neighbours)


@breaks("12.4")
def taking_a_slot_over_is_a_failure(patch: Patch) -> None:
    dismiss = SlotRoster._dismiss
    patch(SlotRoster, "_dismiss", lambda self, register, planned: dismiss(self, register, False))


@breaks("12.4")
def a_slot_of_its_own_waits_behind_the_packed_one(patch: Patch) -> None:
    register = SlotRoster.register

    def behind(self: Any, new: Any) -> Any:
        seat = self._seats[new.slot] if new.slot < len(self._seats) else None
        if seat is not None and seat.holder is not None and seat.holder.hosted:
            seat.waiting.append(new)
            self._seat_of[new.process] = new.slot
            return []
        return register(self, new)

    patch(SlotRoster, "register", behind)


@breaks("12.4")
def packed_slots_come_by_themselves(patch: Patch) -> None:
    patch(SlotPacking, "_abandoned", lambda self, roster: [])


AT_THE_START = "packed-slot-gets-a-place"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (slots_are_never_packed, AT_THE_START, r"the job waits for a place for each slot"),
    (a_process_is_one_peer_whatever_it_plays, AT_THE_START, r"did not connect to their peers"),
    (the_end_of_a_packed_slot_is_that_of_its_process, AT_THE_START, r"ended FAILED"),
    (taking_a_slot_over_is_a_failure, AT_THE_START, r"ended FAILED"),
    (a_slot_of_its_own_waits_behind_the_packed_one, AT_THE_START, r"a slot shares a process to the end"),
    (
        packed_slots_come_by_themselves,
        "packed-slot-is-lost-before-the-first-run",
        r"ended FAILED: the job needs 3 slot",
    ),
]


@pytest.mark.parametrize(("mutant", "schedule", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], schedule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(schedule, violation)
