"""Keeps the timers of a keyed operator: part of its keyed state, in an order to fire in.

A timer is (time, key); registering it twice changes nothing. Registered timers are kept as map state per key, so they
are written and restored by key group like any other state. A heap per kind, rebuilt at a restore, finds the next one.
An entry of the heap whose timer has been deleted is skipped when it comes up. When such entries outnumber the others,
the heap is rebuilt without them. So an operation costs O(log n) on average, and deleted timers keep no memory. Without
this: sessions delete their key's timer and register a later one at every row, and the heap grows without limit.
"""

from __future__ import annotations

import heapq
from typing import Any, Callable, NamedTuple

from penstock.common.types import Types
from penstock.datastream.state import MapStateDescriptor
from penstock.operators.event_time.progress import EventTime
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.state.backend import KeyedStateBackend


class Timer(NamedTuple):
    timestamp_ms: int
    key: Any
    key_group: int


_Entry = tuple[int, int, Any, int]
"""Time, place in the order of registration, key, key group."""

_DEAD_MIN = 64
"""The number of dead entries from which on a heap is worth rebuilding."""


class TimerQueue:
    """Queues the timers of one kind. `time_of(key group)` is how far that time is for the keys of a group."""

    def __init__(self, name: str, operator: str, backend: KeyedStateBackend, time_of: Callable[[int], int]) -> None:
        self._backend = backend
        self._time_of = time_of
        self._registered = backend.state(operator, MapStateDescriptor(name, Types.LONG(), Types.BOOLEAN()))
        self._heap: list[_Entry] = []
        self._overdue: list[_Entry] = []
        """Timers that were registered when their key's time had passed already: they fire with the next watermark, as
        in Flink."""
        self._sequence = 0
        self._dead = 0
        """The number of entries without a registered timer, or for one that has another entry."""
        for key, key_group, timestamps in backend.entries(operator, name):
            for timestamp_ms in timestamps:
                self._push(timestamp_ms, key, key_group)
        self._resumes = bool(self._overdue)

    @property
    def resumes(self) -> bool:
        """Return whether the snapshot was taken while timers were firing: the rest fires before anything else."""
        self._resumes = self._resumes and bool(self._overdue)
        return self._resumes

    def register(self, timestamp_ms: int) -> None:
        """Register a timer of the current key."""
        if not self._registered.contains(timestamp_ms):
            self._registered.put(timestamp_ms, True)
            self._push(timestamp_ms, self._backend.current_key(), self._backend.current_key_group())

    def delete(self, timestamp_ms: int) -> None:
        """Delete a timer of the current key; a missing one is no error."""
        if not self._registered.contains(timestamp_ms):
            return
        self._registered.remove(timestamp_ms)
        self._dead += 1
        if self._dead > _DEAD_MIN and 2 * self._dead > len(self._heap) + len(self._overdue):
            self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the heap without dead entries. Of several entries of one timer, the first stays."""
        backend = self._backend
        at = backend.current_key(), backend.current_key_group()
        kept: set[tuple[int, Any]] = set()
        for heap in (self._overdue, self._heap):
            live: list[_Entry] = []
            for entry in sorted(heap):
                timestamp_ms, _, key, key_group = entry
                backend.set_current_key(key, key_group)
                if (timestamp_ms, key) not in kept and self._registered.contains(timestamp_ms):
                    kept.add((timestamp_ms, key))
                    live.append(entry)
            heap[:] = live  # sorted, so it is a heap already
        backend.set_current_key(*at)
        self._dead = 0

    def _push(self, timestamp_ms: int, key: Any, key_group: int) -> None:
        self._sequence += 1
        overdue = timestamp_ms <= self._time_of(key_group)
        heapq.heappush(self._overdue if overdue else self._heap, (timestamp_ms, self._sequence, key, key_group))

    def next_ms(self) -> int | None:
        """Return when the next timer is due; it may turn out to be deleted."""
        first = [heap[0][0] for heap in (self._overdue, self._heap) if heap]
        return min(first, default=None)

    def due(self, now_ms: int) -> bool:
        return bool(self._overdue) or (bool(self._heap) and self._heap[0][0] <= now_ms)

    def take_due(self, now_ms: int) -> Timer | None:
        """Remove and return the next due timer, and make its key the current one; None if none is due."""
        while self.due(now_ms):
            heap, overdue = self._heap, self._overdue
            if overdue and (not heap or heap[0][0] > now_ms or overdue[0] <= heap[0]):
                heap = overdue  # perhaps of a key group whose time is ahead of the subtask's
            timestamp_ms, _, key, key_group = heapq.heappop(heap)
            self._backend.set_current_key(key, key_group)
            if self._registered.contains(timestamp_ms):
                self._registered.remove(timestamp_ms)
                return Timer(timestamp_ms, key, key_group)
            self._dead -= 1
        return None


_EVENT, _PROCESSING = "_event_time_timers", "_processing_time_timers"


class Timers:
    """Holds both kinds of timers of one operator. A queue exists from the first timer on, so that an operator without
    timers has no state for them.
    """

    def __init__(self, operator: str, backend: KeyedStateBackend, time: EventTime, wall_ms: Callable[[], int]) -> None:
        self._operator = operator
        self._time = time
        self._backend = backend
        self._wall_ms = wall_ms
        self._event = self._queue(_EVENT, time.of_group) if backend.has_restored(operator, _EVENT) else None
        self._processing = self._queue(_PROCESSING, _never) if backend.has_restored(operator, _PROCESSING) else None

    def _queue(self, name: str, time_of: Callable[[int], int]) -> TimerQueue:
        return TimerQueue(name, self._operator, self._backend, time_of)

    def current_watermark_ms(self) -> int:
        return self._time.of_group(self._backend.current_key_group())

    # ---- event time ---------------------------------------------------------------------------------------------

    def register_event(self, timestamp_ms: int) -> None:
        if self._event is None:
            self._event = self._queue(_EVENT, self._time.of_group)
        self._event.register(timestamp_ms)

    def delete_event(self, timestamp_ms: int) -> None:
        if self._event is not None:
            self._event.delete(timestamp_ms)

    @property
    def event_due(self) -> bool:
        return self._event is not None and self._event.due(self._time.current_ms)

    @property
    def resumes_firing(self) -> bool:
        """Return whether the snapshot that we were restored from was taken while timers were firing."""
        return self._event is not None and self._event.resumes

    def take_event(self) -> Timer | None:
        return None if self._event is None else self._event.take_due(self._time.current_ms)

    # ---- processing time ----------------------------------------------------------------------------------------

    def register_processing(self, timestamp_ms: int) -> None:
        if self._processing is None:
            self._processing = self._queue(_PROCESSING, _never)
        self._processing.register(timestamp_ms)

    def delete_processing(self, timestamp_ms: int) -> None:
        if self._processing is not None:
            self._processing.delete(timestamp_ms)

    def processing_due_in_ms(self) -> float | None:
        """Return in how many ms the next timer is due: None if there is none, 0 or less if it is due now."""
        next_ms = None if self._processing is None else self._processing.next_ms()
        return None if next_ms is None or next_ms >= WATERMARK_MAX_MS else next_ms - self._wall_ms()

    def take_processing(self) -> Timer | None:
        return None if self._processing is None else self._processing.take_due(self._wall_ms())


def _never(key_group: int) -> int:
    """Return a time before all others: timers of processing time wait in one order for all key groups."""
    return WATERMARK_MIN_MS
