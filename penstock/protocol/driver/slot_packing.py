"""Packs several slots into a process, if there are fewer task places than slots.

A slot that has no place is played by a process that plays another one already: with fewer rows per second, but now. Its
own Spark job stays submitted; when that gets a place after all, its process takes the slot over (a planned restart).
Slots are packed

  - at the start, where the number of places is fixed and too small (`local[n]`), or has not grown for a while;
  - after a loss, where Spark has fewer places left than there are slots (an executor died, and a new one takes
    seconds), or the slot has not come back for long.

A process that died alone is back in half a second, and nothing is packed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.driver.slots import SlotRoster
from penstock.protocol.values.messages import Host, Message

_LOOK_MS = 200.0
# How long to wait for a host that was asked and has not registered the slot.
_ASKED_MS = 5_000.0


@dataclass(frozen=True)
class Patience:
    """Sets the waits for slots before others play them: after a loss with too few places; after a loss with enough; at
    the start.
    """

    loss_ms: float = 500.0
    return_ms: float = 15_000.0
    start_ms: float = 10_000.0

    @classmethod
    def of(cls, grows: bool) -> Patience:
        """Return longer times if executors come slowly, because each newcomer would cost a restart."""
        return cls(start_ms=60_000.0) if grows else cls()


class SharedSlots(Protocol):
    """Declares the interface of the slots' submissions to packing."""

    def leave_to_another(self, slot: int, relieved: bool) -> int:
        """Expect that another process plays the slot, and return the submission under which it registers. `relieved`:
        a newer submission stays, and its process takes over when it gets a place."""


class SlotPacking:
    """Decides which process plays which slots. All methods are called in the driver's loop, and so is what `ask_places`
    gets; it answers later with the number of task places, or None. `capacity`: how many slots at most have a place of
    their own, if that is fixed. `relieved`: whether a packed slot's own process may take it over later, which costs a
    restart and so needs checkpoints. `warn` gets a line for the user.
    """

    def __init__(
        self,
        slots: SharedSlots,
        send: Callable[[str, Message], None],
        ask_places: Callable[[Callable[[int | None], None]], None],
        warn: Callable[[str], None],
        capacity: int | None,
        relieved: bool,
        patience: Patience,
    ) -> None:
        self._slots = slots
        self._send = send
        self._ask = ask_places
        self._warn = warn
        self._capacity = capacity
        self._relieved = relieved
        self._patience = patience
        self._missing: list[int] = []
        self._since_ms = 0.0
        self._look_at_ms: float | None = None
        self._asked: dict[int, tuple[str, float]] = {}
        self._left: set[int] = set()
        """Seats for which no Spark job is submitted any more."""
        self._told: set[int] = set()
        self._places: int | None = None
        self._is_asking = False

    def next_deadline_ms(self) -> float | None:
        return self._look_at_ms

    def look(self, life: Lifecycle, now_ms: float) -> None:
        """Pack slots if needed; call it after each event. It costs nothing while every slot is played."""
        missing = life.roster.missing if life.is_short and life.shares_slots else []
        if missing != self._missing:
            self._missing, self._since_ms, self._places = missing, now_ms, None
            self._look_at_ms = None
        if not missing:
            self._look_at_ms = None
            self._asked.clear()
            self._told.clear()
            return
        if self._look_at_ms is not None and now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + _LOOK_MS
        if self._capacity is None:
            self._ask_places()
        roster = life.roster
        if self._is_time(life, now_ms):
            empty = roster.empty_seats
            wanted = [slot for slot in missing if slot in empty]
            wanted += [seat for seat in empty if seat not in wanted][: len(missing) - len(wanted)]
            self._pack(wanted, roster, now_ms)
        elif now_ms - self._since_ms >= self._patience.loss_ms:
            self._pack(self._abandoned(roster), roster, now_ms)

    def _abandoned(self, roster: SlotRoster) -> list[int]:
        """Return the seats without a Spark job that are needed, because too few of the others can still come."""
        empty = roster.empty_seats
        abandoned = [seat for seat in empty if seat in self._left]
        return abandoned[: max(0, len(self._missing) - (len(empty) - len(abandoned)))]

    def share(self, seat: int, submission: int, roster: SlotRoster) -> None:
        """Ask another process, if there is one, to relieve the one that holds this seat."""
        leaving = next((r for r in (*roster.members(), *roster.spares) if roster.seat_of(r.process) == seat), None)
        living = _hosts(roster)
        if leaving is not None:
            living = {p: where for p, where in living.items() if where != (leaving.host, leaving.pid)}
        if living:
            self._send(min(living), Host(seat, submission, relieves=True))

    def _is_time(self, life: Lifecycle, now_ms: float) -> bool:
        # 12.4: slots share a process when no place has come for long enough.
        waited_ms, slots, capacity = now_ms - self._since_ms, life.roster.slots, self._capacity
        if capacity is not None and capacity < slots:
            # No other process will come. As soon as every possible process has registered, they share the remaining
            # slots evenly.
            come_still = any(seat < capacity for seat in life.roster.empty_seats)
            return not come_still or waited_ms >= self._patience.start_ms
        if self._places is not None and self._places < slots:
            return waited_ms >= (self._patience.loss_ms if life.has_run else self._patience.start_ms)
        return life.has_run and waited_ms >= self._patience.return_ms

    def _ask_places(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True

        def answered(places: int | None) -> None:
            self._is_asking = False
            self._places = places

        self._ask(answered)

    def _pack(self, wanted: list[int], roster: SlotRoster, now_ms: float) -> None:
        """Ask processes to hold these seats, too."""
        living = _hosts(roster)
        load = Counter((r.host, r.pid) for r in roster.members())
        for seat, (process, asked_ms) in list(self._asked.items()):
            if process not in living or now_ms - asked_ms >= _ASKED_MS:
                del self._asked[seat]
            else:
                load[living[process]] += 1
        packed = []
        for seat in wanted:
            if seat in self._asked or not living:
                continue
            process = min(living, key=lambda p: (load[living[p]], p))
            load[living[process]] += 1
            self._asked[seat] = (process, now_ms)
            packed.append(seat)
            self._send(process, Host(seat, self._slots.leave_to_another(seat, self._relieved)))
            if not self._relieved:
                self._left.add(seat)
        if not self._told.issuperset(packed):
            self._told.update(packed)
            self._warn_of_sharing(packed, len(set(living.values())))

    def _warn_of_sharing(self, packed: list[int], processes: int) -> None:
        places = self._capacity if self._capacity is not None else self._places
        has = "" if places is None else f"; Spark runs {places} tasks at once"
        until = ", until it has a task place of its own" if self._relieved and self._capacity is None else ""
        numbers = ", ".join(map(str, packed))
        self._warn(
            f"slot(s) {numbers} share the processes of others ({processes}){has}{until}. Give Spark more task places "
            "for more speed"
        )


def _hosts(roster: SlotRoster) -> dict[str, tuple[str, int]]:
    """Return the processes that can play further slots, those with a place of their own, by host and process id."""
    return {r.process: (r.host, r.pid) for r in (*roster.members(), *roster.spares) if not r.hosted}
