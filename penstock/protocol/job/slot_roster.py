"""Maps processes to slots.

A slot is a number of the job's; a *seat* is a Spark job that keeps one process running, submitted again whenever it
ends. There are as many seats as slots, and further ones for spares. Seat 3 is meant for slot 3, but any seat's process
may play any slot: when the process of a slot is lost, a spare takes its place at once, and the process that comes back
later fills a vacant slot, or becomes a spare itself.

A seat is held by a process of its newest submission. Within one submission it is the attempt that registered first and
is alive; later ones (speculative copies, retries that overlap) are spares until it is lost, and neither return nor
raise. Processes of older submissions are dismissed, whenever they come.

A process can hold a further seat (hosted), if Spark has no place for another process: a newer submission of that seat
takes it over. For the roster each of its registrations is a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.protocol.values.messages import Register


@dataclass(frozen=True)
class Joined:
    """Reports that `process` plays the slot from now on. `replaced`: the process that has played it so far, and is to
    be dismissed.
    """

    slot: int
    process: str
    replaced: str | None = None


@dataclass(frozen=True)
class SpareJoined:
    """Reports a spare, of its seat or of the job. `seat`: the number under which it was submitted."""

    seat: int
    process: str


@dataclass(frozen=True)
class Dismissed:
    """Reports a process to dismiss. `planned`: it was relieved while nothing was wrong with it, so that this is no
    failure.
    """

    process: str
    reason: str
    planned: bool = False


@dataclass(frozen=True)
class SlotLost:
    """Reports that the process that played the slot is lost. A `Joined` follows if there is a spare."""

    slot: int
    process: str


@dataclass(frozen=True)
class SeatRetired:
    """Reports that nobody is to hold the seat any more."""

    seat: int


RosterChange = Joined | SpareJoined | Dismissed | SlotLost | SeatRetired


@dataclass
class _Seat:
    """Holds who has a seat, and who waits for it."""

    newest_submission: int = -1
    is_retired: bool = False
    """True if nobody is to hold the seat until it is provided again."""
    holder: Register | None = None
    waiting: list[Register] = field(default_factory=list)


class SlotRoster:
    """Maps slots 0 to `slots` - 1 and seats 0 to `slots` + `spares` - 1. In what it returns, `Register.slot` is the
    slot that the process plays, not its seat.
    """

    def __init__(self, slots: int, spares: int = 0) -> None:
        self._seats = [_Seat() for _ in range(slots + spares)]
        self._spares = spares
        self.kept_slots = 0
        """Seats stay for so many slots, even if there are fewer: who comes then is a spare."""
        self._own_seats: set[int] = set()
        """Seats whose holder has a place of its own."""
        self._seat_of: dict[str, int] = {}
        self._players: list[Register | None] = [None] * slots
        self._slot_of: dict[str, int] = {}
        """The slot of each process that plays one."""
        self._missing = set(range(slots))
        self._spare_seats: set[int] = set()
        """Seats whose holder plays no slot."""
        self.pids: list[int | None] = [None] * slots
        """The process id of each slot's player; None for a slot that is missing."""

    @property
    def slots(self) -> int:
        return len(self._players)

    @property
    def registered(self) -> int:
        return len(self._slot_of)

    @property
    def own_processes(self) -> int:
        """Return how many seats are held by a process that has a place of its own, spares included."""
        return len(self._own_seats)

    @property
    def spares(self) -> list[Register]:
        """Return the spares that can take a lost slot's place, in the order in which they are asked to."""
        holders = [self._seats[number].holder for number in sorted(self._spare_seats)]
        return sorted([h for h in holders if h is not None], key=lambda h: h.hosted)

    @property
    def missing(self) -> list[int]:
        return sorted(self._missing)

    @property
    def seats(self) -> int:
        """Return how many seats processes are wanted for, of slots and of spares."""
        return sum(not seat.is_retired for seat in self._seats)

    @property
    def seats_needed(self) -> int:
        return max(self.slots, self.kept_slots) + self._spares

    @property
    def empty_seats(self) -> list[int]:
        return [number for number, seat in enumerate(self._seats) if seat.holder is None and not seat.is_retired]

    @property
    def processes(self) -> list[str]:
        """Return the processes of all seats, spares included."""
        return list(self._seat_of)

    def member(self, slot: int) -> Register | None:
        return self._players[slot]

    def members(self) -> list[Register]:
        return [player for player in self._players if player is not None]

    def plays(self, process: str) -> int | None:
        """Return the slot that the process plays; None for a spare or an unknown process."""
        return self._slot_of.get(process)

    def seat_of(self, process: str) -> int | None:
        return self._seat_of.get(process)

    def register(self, register: Register) -> list[RosterChange]:
        number, process = register.slot, register.process
        if not 0 <= number < len(self._seats):
            return [Dismissed(process, f"this job has slots 0 to {len(self._players) - 1}, not {number}")]
        seat = self._seats[number]
        if process in self._seat_of:
            return []
        if seat.is_retired:
            return [Dismissed(process, f"the job was rescaled, and has no use for submission {number} any more", True)]
        if register.submission < seat.newest_submission:
            return [Dismissed(process, f"slot {number} was submitted again meanwhile")]
        changes: list[RosterChange] = []
        replaced = None
        if register.submission > seat.newest_submission:
            seat.newest_submission = register.submission
            changes += [self._dismiss(older, False) for older in seat.waiting]
            seat.waiting.clear()
            if seat.holder is not None:
                replaced = seat.holder.process
                vacated = self._vacate(replaced)
                changes.append(self._dismiss(seat.holder, register.relieves or seat.holder.hosted))
                self._hold(register.slot, None)
                if vacated is None:
                    replaced = None
                number = number if vacated is None else vacated
        self._seat_of[process] = register.slot
        if seat.holder is not None:
            seat.waiting.append(register)
            return [*changes, SpareJoined(register.slot, process)]
        self._hold(register.slot, register)
        if not self._missing:
            return [*changes, SpareJoined(register.slot, process)]
        slot = number if number in self._missing else min(self._missing)
        self._join(slot, register)
        return [*changes, Joined(slot, process, replaced)]

    def _hold(self, number: int, holder: Register | None) -> None:
        """Give the seat to a process that plays no slot yet, or leave it empty."""
        self._seats[number].holder = holder
        self._own_seats.discard(number)
        if holder is None:
            self._spare_seats.discard(number)
        else:
            self._spare_seats.add(number)
            if not holder.hosted:
                self._own_seats.add(number)

    def _join(self, slot: int, holder: Register) -> None:
        self._spare_seats.discard(self._seat_of[holder.process])
        self._missing.discard(slot)
        self._players[slot] = msgspec.structs.replace(holder, slot=slot)
        self._slot_of[holder.process] = slot
        self.pids[slot] = holder.pid

    def _vacate(self, process: str) -> int | None:
        """Remove the process; return the slot that it played."""
        slot = self._slot_of.pop(process, None)
        if slot is not None:
            self._players[slot] = self.pids[slot] = None
            self._missing.add(slot)
        return slot

    def _dismiss(self, register: Register, planned: bool) -> Dismissed:
        self._seat_of.pop(register.process, None)
        if planned:
            why = "has a place of its own again" if register.hosted else "leaves an executor that is decommissioned"
            return Dismissed(register.process, f"slot {register.slot} {why}", True)
        return Dismissed(register.process, f"slot {register.slot} was submitted again meanwhile")

    def lose(self, process: str) -> list[RosterChange]:
        """Remove a process that has ended, or is given up."""
        number = self._seat_of.pop(process, None)
        if number is None:
            return []
        seat = self._seats[number]
        if seat.holder is None or seat.holder.process != process:
            seat.waiting = [w for w in seat.waiting if w.process != process]
            return []
        self._hold(number, seat.waiting.pop(0) if seat.waiting else None)
        slot = self._vacate(process)
        if slot is None:
            return []
        changes: list[RosterChange] = [SlotLost(slot, process)]
        substitute = seat.holder or next(iter(self.spares), None)
        if substitute is not None:
            self._join(slot, substitute)
            changes.append(Joined(slot, substitute.process))
        return changes

    # ---- another number of slots ---------------------------------------------------------------------------------

    def provide(self, slots: int) -> list[int]:
        """Add the seats that so many slots need, for processes that are spares until `resize`; return their numbers."""
        wanted = slots + self._spares - self.seats
        retired = [number for number, seat in enumerate(self._seats) if seat.is_retired]
        new = (retired + list(range(len(self._seats), len(self._seats) + max(0, wanted))))[: max(0, wanted)]
        for number in new:
            if number == len(self._seats):
                self._seats.append(_Seat())
            self._seats[number].is_retired = False
        return new

    def resize(self, slots: int) -> list[RosterChange]:
        """Have so many slots from now on. Processes of slots that are gone take the place of missing ones; those that
        are left over are dismissed, and so are spares of seats that nobody needs."""
        gone = [member for member in self._players[slots:] if member is not None]
        for member in gone:
            self._slot_of.pop(member.process)
            self._spare_seats.add(self._seat_of[member.process])
        more = slots - len(self._players)
        self._missing = {slot for slot in self._missing if slot < slots} | set(range(len(self._players), slots))
        self._players = self._players[:slots] + [None] * more
        self.pids = self.pids[:slots] + [None] * more
        return self._fill(gone) + self._retire(gone)

    def _fill(self, first: list[Register]) -> list[RosterChange]:
        """Give missing slots to spares, those that are named `first` before others."""
        changes: list[RosterChange] = []
        named = [self._seat_of[member.process] for member in first]
        candidates = [self._seats[number].holder for number in named]
        candidates += [spare for spare in self.spares if spare not in candidates]
        for slot, holder in zip(self.missing, candidates):
            assert holder is not None
            self._join(slot, holder)
            changes.append(Joined(slot, holder.process))
        return changes

    def _retire(self, first: list[Register]) -> list[RosterChange]:
        """Remove the seats that are too many: of processes that played a slot, then empty ones, then of spares."""
        excess = self.seats - self.seats_needed
        spare = {self._seat_of[holder.process] for holder in self.spares}
        played = [number for member in first if (number := self._seat_of[member.process]) in spare]
        idle = sorted(spare - set(played), reverse=True)
        changes: list[RosterChange] = []
        for number in [*played, *reversed(self.empty_seats), *idle][: max(0, excess)]:
            seat = self._seats[number]
            leaving = [*([seat.holder] if seat.holder is not None else []), *seat.waiting]
            self._hold(number, None)
            seat.waiting.clear()
            seat.is_retired = True
            for register in leaving:
                self._seat_of.pop(register.process)
                changes.append(Dismissed(register.process, "the job was rescaled, and needs fewer slots", True))
            changes.append(SeatRetired(number))
        return changes
