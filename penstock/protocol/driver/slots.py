"""Maps processes to slots, and follows each: how far it has come in a generation, and when it must be heard next.

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

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from penstock.protocol.driver.driver_effects import (
    AssignSpare,
    Dismiss,
    FailureCause,
    LifecycleEffect,
    ReleaseSlot,
    ResubmitSlot,
)
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
    """Holds the process of a seat, and the process that waits for it."""

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
        """Seats stay for this number of slots, even if the job has fewer: further processes are spares."""
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
        """Return the number of seats held by a process with a place of its own, spares included."""
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
        """Return the number of seats that need a process, for slots and for spares."""
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
        # 12.1: the newest submission counts.
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
        """Add the seats that `slots` slots need; return their numbers. Their processes are spares until `resize`."""
        wanted = slots + self._spares - self.seats
        retired = [number for number, seat in enumerate(self._seats) if seat.is_retired]
        new = (retired + list(range(len(self._seats), len(self._seats) + max(0, wanted))))[: max(0, wanted)]
        for number in new:
            if number == len(self._seats):
                self._seats.append(_Seat())
            self._seats[number].is_retired = False
        return new

    def resize(self, slots: int) -> list[RosterChange]:
        """Set the number of slots. Processes of removed slots take the place of missing ones. The rest of them are
        dismissed, and so are spares of seats that nobody needs."""
        gone = [member for member in self._players[slots:] if member is not None]
        for member in gone:
            self._slot_of.pop(member.process)
            # 12.10: the process of a slot that is gone stays, as a spare.
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
        # 12.7: seats go with their slots.
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


class ProcessState(Enum):
    """Lists the states of a slot's process in the current generation."""

    FREE = 0
    DEPLOYED = 1
    CONNECTED = 2
    RESTORED = 3
    LEAVING = 4


DEPLOYED_STATES = (ProcessState.DEPLOYED, ProcessState.CONNECTED, ProcessState.RESTORED)


@dataclass
class Player:
    """Tracks one process. Only `Players.move` changes `state` and `leave_by_ms`."""

    process: str
    state: ProcessState
    heard_ms: float
    leave_by_ms: float | None = None
    restoring: tuple[str, ...] = ()
    """Names of subtasks that are still to be restored, as the process said last."""


class Players:
    """Tracks all processes. `heartbeat_timeout_ms`: a process that holds a part of a generation must be heard again
    within this time.
    """

    def __init__(self, heartbeat_timeout_ms: float) -> None:
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._players: dict[str, Player] = {}
        self._by_state: Counter[ProcessState] = Counter()
        self._deadlines: list[tuple[float, str]] = []
        """A heap. Each process that has a deadline has one valid entry, at that time or before it."""
        self._entry_ms: dict[str, float] = {}
        """The time of each process's valid entry; without it, every restart would add one per process."""

    def __getitem__(self, process: str) -> Player:
        return self._players[process]

    def get(self, process: str) -> Player | None:
        return self._players.get(process)

    @property
    def processes(self) -> list[str]:
        return list(self._players)

    def are_all(self, state: ProcessState) -> bool:
        return self._by_state[state] == len(self._players)

    def join(self, process: str, now_ms: float) -> None:
        """Add a process, which plays a slot from now on, and is free."""
        self.drop(process)
        self._players[process] = Player(process, ProcessState.FREE, now_ms)
        self._by_state[ProcessState.FREE] += 1

    def drop(self, process: str) -> Player | None:
        """Forget the process; return its player, None if it had none."""
        player = self._players.pop(process, None)
        if player is not None:
            self._by_state[player.state] -= 1
        return player

    def move(self, player: Player, state: ProcessState, leave_by_ms: float | None = None) -> None:
        self._by_state[player.state] -= 1
        self._by_state[state] += 1
        player.state, player.leave_by_ms = state, leave_by_ms
        deadline_ms = self._deadline_ms(player)
        if deadline_ms is not None and deadline_ms < self._entry_ms.get(player.process, math.inf):
            self._entry_ms[player.process] = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, player.process))

    def next_deadline_ms(self) -> float | None:
        """Return the earliest time at which a process has been silent, or has not left, for too long."""
        deadlines = self._deadlines
        while deadlines:
            due_ms, process = deadlines[0]
            if self._entry_ms.get(process) != due_ms:
                heapq.heappop(deadlines)
                continue
            player = self._players.get(process)
            deadline_ms = None if player is None else self._deadline_ms(player)
            if deadline_ms is None:
                heapq.heappop(deadlines)
                del self._entry_ms[process]
            elif deadline_ms > due_ms:
                heapq.heapreplace(deadlines, (deadline_ms, process))
                self._entry_ms[process] = deadline_ms
            else:
                return due_ms
        return None

    def heard_by_ms(self, player: Player) -> float | None:
        """Return the deadline of the process's next heartbeat; None if it holds no part of a generation.

        Whoever asks whether that time has passed must compare with this sum. Without this: `now_ms - player.heard_ms`
        is rounded differently, the driver is woken at the deadline, finds nobody late, and asks for the same deadline
        without end.
        """
        return None if player.state is ProcessState.FREE else player.heard_ms + self._heartbeat_timeout_ms

    def _deadline_ms(self, player: Player) -> float | None:
        heard_by_ms = self.heard_by_ms(player)
        if heard_by_ms is None or player.leave_by_ms is None:
            return player.leave_by_ms if heard_by_ms is None else heard_by_ms
        return min(heard_by_ms, player.leave_by_ms)

    def excuse(self, now_ms: float, pause_ms: float) -> None:
        """Restart all heartbeat timers if the earliest has run out `pause_ms` ago or longer."""
        watched = [p for p in self._players.values() if p.state is not ProcessState.FREE]
        limit_ms = self._heartbeat_timeout_ms + pause_ms
        if watched and now_ms > min(p.heard_ms for p in watched) + limit_ms:
            for player in watched:
                player.heard_ms = now_ms


class SlotProcesses:
    """Tracks all processes that a job's slots have, in whatever generation."""

    def __init__(self, slots: int, spares: int, heartbeat_timeout_ms: float, cancellation_timeout_ms: float) -> None:
        self.roster = SlotRoster(slots, spares)
        self.players = Players(heartbeat_timeout_ms)
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._cancellation_timeout_ms = cancellation_timeout_ms
        self._missing_since_ms: dict[int, float] = {}
        """The time since when each slot has been missing, the oldest first."""

    @property
    def are_all_free(self) -> bool:
        """Return whether every slot is played, by a process that holds nothing of a generation."""
        return self.roster.registered >= self.roster.slots and self.players.are_all(ProcessState.FREE)

    def members_at(self, state: ProcessState) -> list[Register]:
        return [member for member in self.roster.members() if self.players[member.process].state is state]

    def is_deployed(self, process: str) -> bool:
        player = self.players.get(process)
        return player is not None and player.state in DEPLOYED_STATES

    # ---- what they hold -----------------------------------------------------------------------------------------

    def deploy(self, now_ms: float) -> tuple[Register, ...]:
        """Return the processes that get the next generation, by slot."""
        members = self.roster.members()
        for member in members:
            player = self.players[member.process]
            player.heard_ms, player.restoring = now_ms, ()
            self.players.move(player, ProcessState.DEPLOYED)
        return tuple(members)

    def advance(self, process: str, before: ProcessState, after: ProcessState) -> bool:
        """Move the process on if it is at `before`; return whether it was the last that `after` waited for."""
        player = self.players.get(process)
        if player is None or player.state is not before:
            return False
        self.players.move(player, after)
        return self.players.are_all(after)

    def cancel(self, leave_by_ms: float) -> list[str]:
        """Return the processes that hold the generation which has ended, and must release it."""
        deployed = [member.process for member in self.roster.members() if self.is_deployed(member.process)]
        for process in deployed:
            self.players.move(self.players[process], ProcessState.LEAVING, leave_by_ms)
        return deployed

    def on_left(self, process: str) -> None:
        """Note that the process has released what it held of a generation: it is free again."""
        player = self.players.get(process)
        if player is not None and player.state is ProcessState.LEAVING:
            self.players.move(player, ProcessState.FREE)
            self._forget_if_spare(process)

    def on_heard(self, process: str, now_ms: float) -> None:
        """Note that a slot is alive, because any message of it has arrived."""
        player = self.players.get(process)
        if player is not None:
            player.heard_ms = now_ms

    def on_restoring(self, process: str, names: list[str]) -> None:
        """Note which subtasks of a process are not restored yet."""
        player = self.players.get(process)
        if player is not None:
            player.restoring = tuple(names)

    # ---- who comes and goes -------------------------------------------------------------------------------------

    def follow(
        self, changes: Sequence[RosterChange], now_ms: float, detail: str = ""
    ) -> tuple[list[LifecycleEffect], FailureCause | None]:
        """Return the effects of the roster's changes, and the failure of the generation, if they cause one."""
        effects: list[LifecycleEffect] = []
        cause: FailureCause | None = None
        for change in changes:
            if isinstance(change, SpareJoined):
                effects.append(AssignSpare(change.process))
            elif isinstance(change, Dismissed):
                effects.append(Dismiss(change.process, change.reason))
                if self._was_deployed(change.process):
                    summary = f"{change.reason}: its process was replaced"
                    cause = FailureCause(summary, slot_lost=True, planned=change.planned)
            elif isinstance(change, SlotLost):
                self._missing_since_ms[change.slot] = now_ms
                if self._was_deployed(change.process):
                    why = f": {detail}" if detail else ""
                    cause = FailureCause(f"slot {change.slot} was lost{why}", slot_lost=True)
            elif isinstance(change, Joined):
                self._missing_since_ms.pop(change.slot, None)
                # After a rescale it may still hold what it has played before.
                if self.players.get(change.process) is None:
                    self.players.join(change.process, now_ms)
            elif isinstance(change, SeatRetired):
                effects.append(ReleaseSlot(change.seat))
        return effects, cause

    def lose(self, process: str, now_ms: float, detail: str = "") -> tuple[list[LifecycleEffect], FailureCause | None]:
        """Remove a process that has ended, or is given up. Returns the result of `follow`."""
        effects, cause = self.follow(self.roster.lose(process), now_ms, detail)
        self.players.drop(process)
        return effects, cause

    def _forget_if_spare(self, process: str) -> None:
        """Forget a free process that plays no slot any more. Without this: it counts among those that must connect, and
        no generation ever does.
        """
        player = self.players.get(process)
        if player is not None and player.state is ProcessState.FREE and self.roster.plays(process) is None:
            self.players.drop(process)

    def _was_deployed(self, process: str) -> bool:
        player = self.players.drop(process)
        return player is not None and player.state in DEPLOYED_STATES

    def resize(self, slots: int, now_ms: float) -> list[LifecycleEffect]:
        """Set the number of slots, in a generation that is still to be deployed."""
        effects, _ = self.follow(self.roster.resize(slots), now_ms)
        for process in self.players.processes:
            self._forget_if_spare(process)
        for slot in list(self._missing_since_ms):
            if slot >= slots:
                del self._missing_since_ms[slot]
        for slot in self.roster.missing:
            self._missing_since_ms.setdefault(slot, now_ms)
        return effects

    def resubmit_missing(self, now_ms: float) -> list[LifecycleEffect]:
        """Submit again the slots that have been missing for a heartbeat's limit."""
        effects: list[LifecycleEffect] = []
        for slot, since_ms in list(self._missing_since_ms.items()):
            if now_ms < since_ms + self._heartbeat_timeout_ms:
                break
            del self._missing_since_ms[slot]
            self._missing_since_ms[slot] = now_ms
            empty = self.roster.empty_seats
            effects += [ResubmitSlot(seat) for seat in ([slot] if slot in empty else empty)]
        return effects

    # ---- their deadlines ----------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        deadlines = [self.players.next_deadline_ms()]
        oldest_ms = next(iter(self._missing_since_ms.values()), None)
        if oldest_ms is not None:
            deadlines.append(oldest_ms + self._heartbeat_timeout_ms)
        return min((d for d in deadlines if d is not None), default=None)

    def is_any_late(self, now_ms: float) -> bool:
        due_ms = self.players.next_deadline_ms()
        return due_ms is not None and due_ms <= now_ms

    def excuse_own_pause(self, now_ms: float) -> None:
        """Restart all heartbeat timers if this process was suspended. Without this: queued heartbeats have not been
        processed yet, and every slot is declared lost.
        """
        self.players.excuse(now_ms, self._heartbeat_timeout_ms / 2)

    def why_late(self, process: str, now_ms: float) -> str | None:
        """Return why a process is given up: it has been silent, or has not released its subtasks, for too long."""
        player = self.players[process]
        heard_by_ms = self.players.heard_by_ms(player)
        if heard_by_ms is not None and now_ms >= heard_by_ms:
            return f"no heartbeat for {(now_ms - player.heard_ms) / 1000:g} s (heartbeat.timeout)"
        if player.leave_by_ms is not None and now_ms >= player.leave_by_ms:
            limit_s = self._cancellation_timeout_ms / 1000
            return f"it did not release its subtasks within {limit_s:g} s (task.cancellation.timeout)"
        return None
