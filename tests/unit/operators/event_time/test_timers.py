"""Tests the queue of timers: what is deleted costs no memory, what is left fires in order, each once, and what was
registered late waits for the next watermark.
"""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest

from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.timers import TimerQueue
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.metadata import GroupFloor
from penstock.state.heap.hash_map import HashMapStateBackend

OPERATOR = "operator"


class Queue:
    """Timers of several keys, at a time that the test sets. `restored`: a queue whose backend has the state, and a new
    subtask's time.
    """

    def __init__(self, restored: Queue | None = None, time: EventTime | None = None) -> None:
        self.backend: HashMapStateBackend = HashMapStateBackend(16) if restored is None else restored.backend
        if restored is not None:
            self.backend.has_restored = lambda operator, name: True  # type: ignore[method-assign]
        self.time = time or EventTime()
        self.timers = TimerQueue("timers", OPERATOR, self.backend, self.time)

    def at(self, key: int) -> TimerQueue:
        self.backend.set_current_key(key, key % 16)
        return self.timers

    @property
    def entries(self) -> int:
        return len(self.timers._heap) + len(self.timers._overdue) + len(self.timers._waiting)

    def fire(self, now_ms: int) -> list[tuple[int, int]]:
        self.time.advance(now_ms)
        found = self.take()
        self.time.emitted_ms = self.time.current_ms
        return found

    def take(self) -> list[tuple[int, int]]:
        found = []
        while (timer := self.timers.take_due(self.time.current_ms)) is not None:
            found.append((timer.timestamp_ms, timer.key))
        return found


def time_at(current_ms: int, emitted_ms: int | None = None, floors: dict[int, int] | None = None) -> EventTime:
    time = EventTime()
    runs = [GroupFloor(group, group + 1, floor_ms) for group, floor_ms in (floors or {}).items()]
    time.restore(current_ms, current_ms if emitted_ms is None else emitted_ms, runs)
    return time


def sessions(queue: Queue, rows: int, keys: int) -> int:
    """Each row deletes its key's timer and registers a later one. Returns the largest number of entries."""
    largest = 0
    for row in range(rows):
        timers = queue.at(row % keys)
        if row >= keys:
            timers.delete(row - keys + 10**9)
        timers.register(row + 10**9)
        if not row % 64:
            largest = max(largest, queue.entries)
    return largest


def test_a_million_timers_registered_and_deleted_leave_nothing_behind() -> None:
    """[An entry stayed until it would have fired: 135 bytes a row.]"""
    queue = Queue()
    assert sessions(queue, 1_000_000, 100) <= 2 * 100 + 64 + 1
    assert len(queue.fire(2 * 10**9)) == 100


def test_memory_of_deleted_timers() -> None:
    rows, keys = 100_000, 100
    queue = Queue()
    sessions(queue, 10 * keys, keys)
    tracemalloc.start()
    try:
        sessions(queue, rows, keys)
        grown_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 200_000 and peak_bytes < 500_000, "it was 13 MB"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_fires_in_order_and_once(seed: int) -> None:
    random, queue = Random(seed), Queue()
    model: set[tuple[int, int]] = set()
    fired: list[tuple[int, int]] = []
    expected: list[tuple[int, int]] = []
    now_ms = 0
    for _ in range(3000):
        key, at_ms = random.randrange(12), now_ms + random.randrange(-20, 400)
        drawn = random.random()
        if drawn < 0.55:
            queue.at(key).register(at_ms)
            model.add((at_ms, key))
        elif drawn < 0.97 and model:
            doomed = random.choice(sorted(model))
            queue.at(doomed[1]).delete(doomed[0])
            assert queue.backend.current_key() == doomed[1], "a rebuilt heap leaves the current key alone"
            model.discard(doomed)
        else:
            queue.at(key).delete(at_ms + 10_000)  # there is none
            now_ms += random.randrange(1, 60)
            due = sorted(timer for timer in model if timer[0] <= now_ms)
            fired_now = queue.fire(now_ms)
            assert sorted(fired_now) == due
            fired += fired_now
            expected += due
            model.difference_update(due)
        assert queue.timers._dead >= 0 and queue.entries == len(model) + queue.timers._dead
    assert expected and sorted(queue.fire(10**9)) == sorted(model)
    assert queue.entries == 0 and queue.timers._dead == 0


# ---- registered late ------------------------------------------------------------------------------------------------


def late_at_500() -> Queue:
    """Return a queue at time 500, where key 3 has a timer that waits, and a later one."""
    queue = Queue()
    assert queue.fire(500) == []
    queue.at(3).register(110)
    queue.at(3).register(700)
    return queue


def test_a_timer_registered_late_waits_for_the_next_watermark() -> None:
    queue = late_at_500()
    assert queue.take() == [] and not queue.timers.due(500)
    queue.at(3).delete(110)
    queue.at(3).register(120)
    assert queue.fire(501) == [(120, 3)]
    assert queue.fire(700) == [(700, 3)] and queue.entries == 0


def test_what_is_registered_late_while_timers_fire_fires_with_them() -> None:
    queue = late_at_500()
    queue.time.advance(700)
    assert queue.timers.take_due(700) == (110, 3, 3)
    queue.at(3).register(600)
    assert queue.take() == [(600, 3), (700, 3)]


@pytest.mark.parametrize(
    "time",
    [
        time_at(500),
        time_at(400, floors={3: 500}),
        time_at(400, 300, floors={3: 500}),
        time_at(500, 300, floors={3: 500}),
    ],
    ids=["restarted", "at the time of another owner", "which has said less", "and is as far"],
)
def test_a_restored_timer_that_was_registered_late_still_waits(time: EventTime) -> None:
    """It was taken for one that was firing when the snapshot was taken, and fired before rows in flight that preceded
    the next watermark, and could have deleted it.
    """
    restored = Queue(late_at_500(), time)
    assert not restored.timers.resumes and restored.take() == []
    assert restored.fire(500) == [], "its key has seen that"
    again = Queue(restored, time_at(500))
    assert not again.timers.resumes and again.take() == []
    assert again.fire(501) == [(110, 3)]


def test_the_state_of_late_timers_is_asked_for_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk every timer that fired would cost one more read for good, because one was once late."""
    queue = Queue(late_at_500(), time_at(500))
    passing = queue.timers._passing
    assert passing is not None
    asked, contains = [], type(passing).contains

    def counted(state: Any, timestamp_ms: int) -> bool:
        if state is passing:
            asked.append(timestamp_ms)
        return contains(state, timestamp_ms)

    monkeypatch.setattr(type(passing), "contains", counted)
    assert queue.fire(600) == [(110, 3)] and 110 in asked
    asked.clear()
    assert queue.fire(700) == [(700, 3)] and not asked
    assert list(queue.backend.entries(OPERATOR, "timers_passing")) == []


def test_a_restored_timer_has_waited_if_its_new_owner_is_further() -> None:
    restored = Queue(late_at_500(), time_at(600, 300, floors={3: 500}))
    assert restored.timers.resumes
    again = Queue(restored, time_at(600, 300))
    assert again.timers.resumes and again.take() == [(110, 3)]


def test_a_restored_timer_of_a_key_that_had_no_time_has_waited_at_a_new_owner_that_has() -> None:
    """A floor at the least time is none: it would have waited for a time after the last."""
    queue = Queue()
    queue.at(3).register(WATERMARK_MIN_MS)
    queue.at(4).register(500)
    again = Queue(queue, time_at(WATERMARK_MIN_MS))
    assert not again.timers.resumes and again.take() == []
    assert Queue(queue, time_at(WATERMARK_MAX_MS)).take() == [(WATERMARK_MIN_MS, 3), (500, 4)]


def test_a_timer_that_was_registered_at_the_end_of_time_waits_for_nothing_when_time_begins_again() -> None:
    queue = Queue()
    queue.fire(WATERMARK_MAX_MS)
    queue.at(3).register(100)
    begun_again = Queue(queue, time_at(WATERMARK_MIN_MS))
    assert begun_again.take() == []
    interrupted = Queue(begun_again, time_at(200, 50))
    assert interrupted.timers.resumes and interrupted.take() == [(100, 3)]


@pytest.mark.parametrize("time", [time_at(600, 500), time_at(400, floors={3: 600})], ids=["restarted", "rescaled"])
def test_firing_resumes_with_what_was_registered_late(time: EventTime) -> None:
    queue = late_at_500()
    queue.at(4).register(600)
    queue.time.advance(600)
    restored = Queue(Queue(queue, time), time)  # and once more before anything has fired
    assert restored.timers.resumes and restored.timers.take_due(time.current_ms) == (110, 3, 3)


@pytest.mark.parametrize("time", [time_at(600, 500), time_at(400, floors={4: 600})], ids=["restarted", "rescaled"])
def test_the_last_timer_that_fires_may_register_another_one_that_fires_with_it(time: EventTime) -> None:
    """A timer that sets the next one, every 10 ms, comes as far as time does."""
    queue = Queue()
    queue.fire(500)
    queue.at(4).register(580)
    queue.time.advance(600)
    restored = Queue(queue, time)
    fired = []
    while restored.timers.resumes and (timer := restored.timers.take_due(time.current_ms)) is not None:
        fired.append(timer.timestamp_ms)
        restored.timers.register(timer.timestamp_ms + 10)
    assert fired == [580, 590, 600]
    assert restored.take() == [] and restored.entries == 1


def test_the_end_of_time_passes_all() -> None:
    queue = Queue(time=time_at(500, floors={3: WATERMARK_MAX_MS}))
    queue.at(3).register(110)
    assert queue.fire(501) == []
    assert queue.fire(WATERMARK_MAX_MS) == [(110, 3)]
