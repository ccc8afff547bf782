"""Decides which request for a checkpoint goes next, and when (Flink's CheckpointRequestDecider).

Order of the queue: savepoints before checkpoints, forced ones first among them, then those that a user asked for before
periodic ones, then older before younger. A periodic request within the minimum pause is dropped, and the periodic
trigger moved; other requests are not bound by the pause. Forced requests pass the limit of pending checkpoints. This
limit is 1 after a checkpoint has expired, until one completes (PROTOCOL.md 2.8; Flink keeps its own).

Flink also waits while the files of too many subsumed checkpoints are still to be deleted. Here the driver deletes and
publishes in one order (`BlockingWork`): the deletions that a checkpoint allows come before the next is published.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from penstock.protocol.checkpoint.savepoint import Savepoint
from penstock.protocol.values.reasons import FailureReason

QUEUE_MAX = 1000


@dataclass(frozen=True)
class CheckpointRequest:
    """Holds one request. `number` grows with every request. `is_forced`: it passes the limit of concurrent
    checkpoints.
    """

    number: int
    is_periodic: bool = False
    is_forced: bool = False
    savepoint: Savepoint | None = None

    @property
    def is_savepoint(self) -> bool:
        return self.savepoint is not None

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        return (not self.is_savepoint, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True)
class Situation:
    """Describes the coordinator's state. `is_triggering`: an earlier request has been chosen, and its trigger has not
    left yet. `is_congested`: a checkpoint has expired, and none has completed since. `last_completion_ms`
    None: no checkpoint has completed yet.
    """

    now_ms: float
    pending: int = 0
    is_triggering: bool = False
    is_congested: bool = False
    last_completion_ms: float | None = None


@dataclass(frozen=True)
class Start:
    """Trigger a checkpoint for the request now."""

    request: CheckpointRequest


@dataclass(frozen=True)
class Drop:
    """Drop the request. `retry_after_ms`: when the periodic trigger is to fire again; None: at its own time."""

    request: CheckpointRequest
    reason: FailureReason
    retry_after_ms: float | None = None


Decision = Start | Drop


@dataclass
class CheckpointRequestDecider:
    """Holds the requests that wait, at most `queue_max`, and picks one whenever the situation has changed."""

    concurrent_max: int = 1
    min_pause_ms: float = 0.0
    queue_max: int = QUEUE_MAX
    _queue: list[CheckpointRequest] = field(default_factory=list, init=False)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Return whether a user's request for a checkpoint would be dropped."""
        return len(self._queue) >= self.queue_max and not self._queue[-1].is_periodic

    def on_request(self, request: CheckpointRequest, situation: Situation) -> list[Decision]:
        dropped: list[Decision] = []
        if len(self._queue) >= self.queue_max:
            worst = self._queue[-1]
            if not worst.is_periodic or worst.rank < request.rank:
                return [Drop(request, FailureReason.TOO_MANY_REQUESTS)]
            self._queue.pop()
            dropped.append(Drop(worst, FailureReason.TOO_MANY_REQUESTS))
        insort(self._queue, request, key=lambda r: r.rank)
        return dropped + self.on_change(situation)

    def on_change(self, situation: Situation) -> list[Decision]:
        """Return the next decisions. Call it whenever a checkpoint has been triggered or has ended."""
        if situation.is_triggering or not self._queue:
            return []
        head = self._queue[0]
        if situation.pending >= (1 if situation.is_congested else self.concurrent_max):
            return [Start(self._queue.pop(0))] if head.is_forced else []
        if head.is_periodic and not head.is_forced and situation.last_completion_ms is not None:
            remaining_ms = situation.last_completion_ms + self.min_pause_ms - situation.now_ms
            if remaining_ms > 0:
                self._queue.pop(0)
                return [Drop(head, FailureReason.MINIMUM_TIME_BETWEEN, remaining_ms)]
        return [Start(self._queue.pop(0))]

    def abandon(self, reason: FailureReason) -> list[Decision]:
        """Drops everything queued (the job restarts or ends)."""
        dropped: list[Decision] = [Drop(r, reason) for r in self._queue]
        self._queue.clear()
        return dropped
