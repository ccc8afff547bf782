"""Keeps the timers of a keyed operator: part of its keyed state, in an order to fire in.

A timer is (time, key); registering it twice changes nothing. Registered timers are kept as map state per key, so they
are written and restored by key group like any other state. A heap per kind, rebuilt at a restore, finds the next one.
An entry of the heap whose timer has been deleted is skipped when it comes up. When such entries outnumber the others,
the heap is rebuilt without them. So an operation costs O(log n) on average, and deleted timers keep no memory. Without
this: sessions delete their key's timer and register a later one at every row, and the heap grows without limit.

A timer of event time that is registered when its key's time has passed it *waits*: it fires with the next watermark
that the key sees, as in Flink. A state of its own has these timers, with the time that has to pass. Without that a
restore takes them for what is left of the firing that a snapshot interrupted, and they fire before rows that precede
the watermark.
"""

from __future__ import annotations

import heapq
from typing import Any, Callable, NamedTuple

from penstock.common.types import Types
from penstock.datastream.state import MapState, MapStateDescriptor
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
    """Queues the timers of one kind. `time`: the event time of keys; None: processing time, so no timer waits."""

    def __init__(self, name: str, operator: str, backend: KeyedStateBackend, time: EventTime | None) -> None:
        self._name = name
        self._operator = operator
        self._backend = backend
        self._time = time
        self._registered = backend.state(operator, MapStateDescriptor(name, Types.LONG(), Types.BOOLEAN()))
        self._passing: MapState[int, int] | None = None
        """Timers that wait -> the time that has to pass before they fire. There is no such state before the first."""
        self._passing_timers = 0
        """The number of timers in `_passing`. Without this: after one timer has waited, each deletion would read that
        state."""
        self._heap: list[_Entry] = []
        self._overdue: list[_Entry] = []
        """Timers that fire now, though their key's time may be ahead of the subtask's."""
        self._waiting: list[tuple[int, _Entry]] = []
        """Timers that wait, by the time that has to pass before they fire."""
        self._sequence = 0
        self._dead = 0
        """The number of entries without a registered timer, or for one that has another entry."""
        self._restore()
        self._resumes = bool(self._overdue)

    @property
    def _name_of_passing(self) -> str:
        return f"{self._name}_passing"

    def _restore(self) -> None:
        backend, operator = self._backend, self._operator
        waiting: dict[Any, dict[int, int]] = {}
        if self._time is not None and backend.has_restored(operator, self._name_of_passing):
            self._passing = self._passing_state()
            waiting = {key: dict(passing) for key, _, passing in backend.entries(operator, self._name_of_passing)}
            self._passing_timers = sum(map(len, waiting.values()))
        for key, key_group, timestamps in backend.entries(operator, self._name):
            passing = waiting.get(key, {})
            for timestamp_ms in timestamps:
                entry = self._entry(timestamp_ms, key, key_group)
                time_ms = self._time_of(key_group)
                if timestamp_ms > time_ms:
                    heapq.heappush(self._heap, entry)
                elif passing.get(timestamp_ms) == time_ms:
                    heapq.heappush(self._waiting, (time_ms, entry))
                else:
                    # Time has passed since; or it began again, in a job that was started from a drained savepoint.
                    heapq.heappush(self._overdue, entry)

    def _passing_state(self) -> MapState[int, int]:
        descriptor = MapStateDescriptor(self._name_of_passing, Types.LONG(), Types.LONG())
        found: MapState[int, int] = self._backend.state(self._operator, descriptor)
        return found

    def _time_of(self, key_group: int) -> int:
        """Return the time of a group's keys; one before all timers, if they never wait."""
        return WATERMARK_MIN_MS - 1 if self._time is None else self._time.of_group(key_group)

    def _entry(self, timestamp_ms: int, key: Any, key_group: int) -> _Entry:
        self._sequence += 1
        return timestamp_ms, self._sequence, key, key_group

    @property
    def resumes(self) -> bool:
        """Return whether the snapshot was taken while timers were firing: the rest fires before anything else."""
        self._resumes = self._resumes and bool(self._overdue)
        return self._resumes

    def register(self, timestamp_ms: int) -> None:
        """Register a timer of the current key."""
        if self._registered.contains(timestamp_ms):
            return
        self._registered.put(timestamp_ms, True)
        key, key_group = self._backend.current_key(), self._backend.current_key_group()
        entry, time_ms = self._entry(timestamp_ms, key, key_group), self._time_of(key_group)
        if timestamp_ms > time_ms:
            heapq.heappush(self._heap, entry)
        elif self._is_firing:
            heapq.heappush(self._overdue, entry)
        else:
            if self._passing is None:
                self._passing = self._passing_state()
            self._passing.put(timestamp_ms, time_ms)
            self._passing_timers += 1
            heapq.heappush(self._waiting, (time_ms, entry))

    @property
    def _is_firing(self) -> bool:
        """Return whether timers are firing. A timer that a firing one registers for a time that has passed fires in the
        same round. A round that a restore resumed lasts until `resumes` is read after its last timer.
        """
        return self._resumes or (self._time is not None and self._time.behind)

    def delete(self, timestamp_ms: int) -> None:
        """Delete a timer of the current key; a missing one is no error."""
        if not self._registered.contains(timestamp_ms):
            return
        self._remove(timestamp_ms)
        self._dead += 1
        if self._dead > _DEAD_MIN and 2 * self._dead > len(self._heap) + len(self._overdue) + len(self._waiting):
            self._rebuild()

    def _remove(self, timestamp_ms: int) -> None:
        self._registered.remove(timestamp_ms)
        if self._passing is not None and self._passing_timers and self._passing.contains(timestamp_ms):
            self._passing.remove(timestamp_ms)
            self._passing_timers -= 1

    def _rebuild(self) -> None:
        """Rebuild the heaps without dead entries. Of several entries of one timer, the first stays."""
        backend = self._backend
        at = backend.current_key(), backend.current_key_group()
        kept: set[tuple[int, Any]] = set()

        def stays(entry: _Entry) -> bool:
            timestamp_ms, _, key, key_group = entry
            backend.set_current_key(key, key_group)
            if (timestamp_ms, key) in kept or not self._registered.contains(timestamp_ms):
                return False
            kept.add((timestamp_ms, key))
            return True

        for heap in (self._overdue, self._heap):
            heap[:] = [entry for entry in sorted(heap) if stays(entry)]  # sorted, so it is a heap already
        self._waiting[:] = [late for late in sorted(self._waiting) if stays(late[1])]
        backend.set_current_key(*at)
        self._dead = 0

    # ---- firing -------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """Return the time of the next timer; it may turn out to be deleted."""
        first = [heap[0][0] for heap in (self._overdue, self._heap) if heap]
        return min(first, default=None)

    def due(self, now_ms: int) -> bool:
        return bool(self._overdue) or (bool(self._heap) and self._heap[0][0] <= now_ms) or self._has_waited(now_ms)

    def _has_waited(self, now_ms: int) -> bool:
        """Return whether time has passed that a timer has waited for. The end of time passes all."""
        return bool(self._waiting) and (self._waiting[0][0] < now_ms or now_ms == WATERMARK_MAX_MS)

    def take_due(self, now_ms: int) -> Timer | None:
        """Remove and return the next due timer, and make its key the current one; None if none is due."""
        while (entry := self._next(now_ms)) is not None:
            timestamp_ms, _, key, key_group = entry
            self._backend.set_current_key(key, key_group)
            if self._registered.contains(timestamp_ms):
                self._remove(timestamp_ms)
                return Timer(timestamp_ms, key, key_group)
            self._dead -= 1
        return None

    def _next(self, now_ms: int) -> _Entry | None:
        """Remove and return the first of all due entries."""
        heap, overdue = self._heap, self._overdue
        if overdue and (not heap or heap[0][0] > now_ms or overdue[0] <= heap[0]):
            heap = overdue
        is_due = bool(heap) and (heap is overdue or heap[0][0] <= now_ms)
        if self._has_waited(now_ms) and not (is_due and heap[0] <= self._waiting[0][1]):
            return heapq.heappop(self._waiting)[1]
        return heapq.heappop(heap) if is_due else None


EVENT_TIMERS, PROCESSING_TIMERS = "_event_time_timers", "_processing_time_timers"


class Timers:
    """Holds both kinds of timers of one operator. A queue exists from the first timer on, so that an operator without
    timers has no state for them.
    """

    def __init__(self, operator: str, backend: KeyedStateBackend, time: EventTime, wall_ms: Callable[[], int]) -> None:
        self._operator = operator
        self._time = time
        self._backend = backend
        self._wall_ms = wall_ms
        self._event = self._queue(EVENT_TIMERS, time) if backend.has_restored(operator, EVENT_TIMERS) else None
        self._processing = (
            self._queue(PROCESSING_TIMERS, None) if backend.has_restored(operator, PROCESSING_TIMERS) else None
        )

    def _queue(self, name: str, time: EventTime | None) -> TimerQueue:
        return TimerQueue(name, self._operator, self._backend, time)

    def current_watermark_ms(self) -> int:
        return self._time.of_group(self._backend.current_key_group())

    # ---- event time ---------------------------------------------------------------------------------------------

    def register_event(self, timestamp_ms: int) -> None:
        if self._event is None:
            self._event = self._queue(EVENT_TIMERS, self._time)
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
            self._processing = self._queue(PROCESSING_TIMERS, None)
        self._processing.register(timestamp_ms)

    def delete_processing(self, timestamp_ms: int) -> None:
        if self._processing is not None:
            self._processing.delete(timestamp_ms)

    def processing_due_in_ms(self) -> float | None:
        """Return the time until the next timer, in ms: None if there is none, 0 or less if it is due now."""
        next_ms = None if self._processing is None else self._processing.next_ms()
        return None if next_ms is None or next_ms >= WATERMARK_MAX_MS else next_ms - self._wall_ms()

    def take_processing(self) -> Timer | None:
        return None if self._processing is None else self._processing.take_due(self._wall_ms())


class EndingTimers(Timers):
    """Fires the timers of a key when its rows have ended, those of processing time too, whatever their time is.

    A timer of processing time that a firing one registers does not fire. Without this: a function that registers the
    next one each time would never end.
    """

    def register_processing(self, timestamp_ms: int) -> None:
        if self._time.current_ms < WATERMARK_MAX_MS:
            super().register_processing(timestamp_ms)

    @property
    def processing_due(self) -> bool:
        return self._processing is not None and self._processing.due(WATERMARK_MAX_MS)

    def take_processing(self) -> Timer | None:
        return None if self._processing is None else self._processing.take_due(WATERMARK_MAX_MS)
