"""Follows the processes of a job's slots: which one plays which slot, how far each is, and who is silent or missing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.protocol.job.lifecycle_effects import (
    AssignSpare,
    Dismiss,
    Effect,
    FailureCause,
    ReleaseSlot,
    ResubmitSlot,
)
from penstock.protocol.job.lifecycle_settings import LifecycleSettings
from penstock.protocol.job.players import DEPLOYED_STATES, Players, ProcessState
from penstock.protocol.job.slot_roster import (
    Dismissed,
    Joined,
    RosterChange,
    SeatRetired,
    SlotLost,
    SlotRoster,
    SpareJoined,
)
from penstock.protocol.values.messages import Register


class SlotProcesses:
    """Tracks all processes that a job's slots have, in whatever generation."""

    def __init__(self, settings: LifecycleSettings) -> None:
        self.roster = SlotRoster(settings.slots, settings.spares)
        self.players = Players(settings.heartbeat_timeout_ms)
        self._settings = settings
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
    ) -> tuple[list[Effect], FailureCause | None]:
        """Return what the changes of the roster ask for, and how they fail the generation, if they do."""
        effects: list[Effect] = []
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

    def lose(self, process: str, now_ms: float, detail: str = "") -> tuple[list[Effect], FailureCause | None]:
        """Remove a process that has ended, or is given up; the result is that of `follow`."""
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

    def resize(self, slots: int, now_ms: float) -> list[Effect]:
        """Have so many slots from now on, in a generation that is still to be deployed."""
        effects, _ = self.follow(self.roster.resize(slots), now_ms)
        for process in self.players.processes:
            self._forget_if_spare(process)
        for slot in list(self._missing_since_ms):
            if slot >= slots:
                del self._missing_since_ms[slot]
        for slot in self.roster.missing:
            self._missing_since_ms.setdefault(slot, now_ms)
        return effects

    def resubmit_missing(self, now_ms: float) -> list[Effect]:
        """Submit again what has been missing for as long as a heartbeat may take."""
        effects: list[Effect] = []
        for slot, since_ms in list(self._missing_since_ms.items()):
            if now_ms < since_ms + self._settings.heartbeat_timeout_ms:
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
            deadlines.append(oldest_ms + self._settings.heartbeat_timeout_ms)
        return min((d for d in deadlines if d is not None), default=None)

    def is_any_late(self, now_ms: float) -> bool:
        due_ms = self.players.next_deadline_ms()
        return due_ms is not None and due_ms <= now_ms

    def excuse_own_pause(self, now_ms: float) -> None:
        """Restart all heartbeat timers if this process was suspended. Without this: queued heartbeats have not been
        processed yet, and every slot is declared lost.
        """
        self.players.excuse(now_ms, self._settings.heartbeat_timeout_ms / 2)

    def why_late(self, process: str, now_ms: float) -> str | None:
        """Return why a process is given up: it has been silent, or has not released its subtasks, for too long."""
        player = self.players[process]
        heard_by_ms = self.players.heard_by_ms(player)
        if heard_by_ms is not None and now_ms >= heard_by_ms:
            return f"no heartbeat for {(now_ms - player.heard_ms) / 1000:g} s (heartbeat.timeout)"
        if player.leave_by_ms is not None and now_ms >= player.leave_by_ms:
            limit_s = self._settings.cancellation_timeout_ms / 1000
            return f"it did not release its subtasks within {limit_s:g} s (task.cancellation.timeout)"
        return None
