"""Tests the queue of timers: what is deleted costs no memory, and what is left fires in order, each once."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from penstock.operators.event_time.timers import TimerQueue
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.state.heap.hash_map import HashMapStateBackend

OPERATOR = "operator"


class Queue:
    """Timers of several keys, at a time that the test sets."""

    def __init__(self) -> None:
        self.backend = HashMapStateBackend(16)
        self.now_ms = WATERMARK_MIN_MS
        self.timers = TimerQueue("timers", OPERATOR, self.backend, lambda key_group: self.now_ms)

    def at(self, key: int) -> TimerQueue:
        self.backend.set_current_key(key, key % 16)
        return self.timers

    @property
    def entries(self) -> int:
        return len(self.timers._heap) + len(self.timers._overdue)

    def fire(self, now_ms: int) -> list[tuple[int, int]]:
        self.now_ms = now_ms
        found = []
        while (timer := self.timers.take_due(now_ms)) is not None:
            found.append((timer.timestamp_ms, timer.key))
        return found


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
            now_ms += random.randrange(60)
            due = sorted(timer for timer in model if timer[0] <= now_ms)
            fired_now = queue.fire(now_ms)
            assert sorted(fired_now) == due
            fired += fired_now
            expected += due
            model.difference_update(due)
        assert queue.timers._dead >= 0 and queue.entries == len(model) + queue.timers._dead
    assert expected and sorted(queue.fire(10**9)) == sorted(model)
    assert queue.entries == 0 and queue.timers._dead == 0
