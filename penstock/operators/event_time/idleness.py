"""Measures the silence of each split, in time in which it could have been read.

Time in which a subtask is held for draining, waits for room in its outputs or is parked does not count: rows may wait
then that nobody reads. Neither does the time that a split waits in the reader behind others, unless nothing comes from
any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container

NEVER_MS = float("inf")
_ROUNDING_MS = 1e-3
"""The largest error of a sum of times. Without this: a subtask wakes up at its deadline, finds that the timeout has
not quite passed, and asks for the same deadline without end.
"""


class _Timer:
    __slots__ = ("since_ms", "reads", "was_queued")

    def __init__(self, since_ms: float, reads: int) -> None:
        self.since_ms = since_ms
        self.reads = reads
        self.was_queued = False


class IdleTimers:
    """Runs one timer per split. `timeout_ms`: `inf` if no split ever becomes idle. The clock stands still until the
    first `advance`, and after `pause` until the next one.
    """

    def __init__(self, timeout_ms: float, monotonic_ms: Callable[[], float]) -> None:
        self._timeout_ms = timeout_ms
        self._monotonic_ms = monotonic_ms
        self._counted_ms = 0.0
        self._counted_until_ms: float | None = None
        self._reads = 0
        self._quiet_since_ms: float | None = None
        self._timers: dict[str, _Timer] = {}

    def start(self, split: str) -> None:
        self._timers[split] = _Timer(self._counted_ms, self._reads)

    def end(self, split: str) -> None:
        self._timers.pop(split, None)

    def restart(self, split: str) -> None:
        """Give a split the whole timeout again, although nothing came from it."""
        self._restart(self._timers[split])

    # ---- what happens -------------------------------------------------------------------------------------------

    def on_rows(self, split: str) -> None:
        if self._counted_until_ms is not None:
            self._count(self._monotonic_ms())
        self._quiet_since_ms = None
        self._reads += 1
        self._restart(self._timers[split])

    def on_quiet(self) -> None:
        """Note that nothing came from any split."""
        self._reads += max(len(self._timers), 1)
        if self._quiet_since_ms is None:
            self._quiet_since_ms = self._counted_ms

    def advance(self, now_ms: float, queued: Container[str]) -> None:
        """Advance the time, which counts, to `now_ms`. `queued`: splits that wait in the reader behind others."""
        self._count(now_ms)
        for split, timer in self._timers.items():
            is_queued = split in queued
            if self._quiet_since_ms is None and (is_queued or timer.was_queued):
                self._restart(timer)
            timer.was_queued = is_queued

    def pause(self) -> None:
        """Stop counting time from now on."""
        if self._counted_until_ms is not None:
            self._count(self._monotonic_ms())
            self._counted_until_ms = None

    def _count(self, now_ms: float) -> None:
        if self._counted_until_ms is not None:
            self._counted_ms += now_ms - self._counted_until_ms
        self._counted_until_ms = now_ms

    def _restart(self, timer: _Timer) -> None:
        timer.since_ms, timer.reads = self._counted_ms, self._reads

    # ---- who is silent ------------------------------------------------------------------------------------------

    def is_silent(self, split: str) -> bool:
        """Return whether the timeout has passed. A reader that alternates between splits must have reached this split
        meanwhile; otherwise a long slice of another split would make this one silent.
        """
        # 10.4: silent in time in which rows could be read.
        timer = self._timers[split]
        has_had_its_turn = self._reads - timer.reads >= len(self._timers)
        return has_had_its_turn and self._is_over(timer.since_ms)

    @property
    def all_quiet(self) -> bool:
        """Return whether nothing at all has come for the timeout."""
        return self._quiet_since_ms is not None and self._is_over(self._quiet_since_ms)

    def _is_over(self, since_ms: float) -> bool:
        return self._counted_ms - since_ms >= self._timeout_ms - _ROUNDING_MS

    def next_deadline_ms(self) -> float:
        """Return the time at which the next split becomes silent if nothing comes until then; `inf`: none will."""
        if self._counted_until_ms is None:
            return NEVER_MS
        waiting = [t.since_ms for t in self._timers.values() if not self._is_over(t.since_ms)]
        if not self._timers and self._quiet_since_ms is not None and not self.all_quiet:
            waiting.append(self._quiet_since_ms)
        return self._counted_until_ms + min(waiting) + self._timeout_ms - self._counted_ms if waiting else NEVER_MS
