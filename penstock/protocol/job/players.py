"""Holds the processes that play slots: how far each has come in a generation, and when each must be heard next.

What is asked after every message costs the same however many slots there are: processes are counted by their state,
and the earliest deadline is at the top of a heap. Most messages move a deadline to a later time. Such an entry stays
where it is, and is corrected when it reaches the top.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum


class ProcessState(Enum):
    """Lists how far one slot's process has come in the current generation."""

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
        """Forget the process; return what it was, or None."""
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
        """Return until when the process must have been heard again; None if it holds no part of a generation.

        Whoever asks whether that time has passed must compare with this sum. Without this: `now_ms - player.heard_ms`
        is rounded otherwise, the driver is woken at the deadline, finds nobody late, and asks for the same deadline
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
