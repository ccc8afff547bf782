"""Answers leave in the order that was declared, and no row passes a watermark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.operators.calls.call_queue import Call, CallQueue, by_edge, rows_of

BATCH = pa.RecordBatch.from_pydict({"n": list(range(20))})


def queue_of(calls: int, ordered: bool, capacity: int = 100) -> tuple[CallQueue, list[Call]]:
    queue = CallQueue(capacity, ordered)
    origin = queue.add_batch(BATCH, "edge")
    made = [Call(number, origin, number, None) for number in range(calls)]
    for call in made:
        queue.add(call)
    return queue, made


def leave(queue: CallQueue, calls_max: int = 100) -> list[int]:
    ready = queue.ready(calls_max)
    queue.remove(ready)
    return [call.number for call in ready]


def test_ordered_answers_wait_for_those_before_them() -> None:
    queue, calls = queue_of(4, ordered=True)
    for number in (3, 1):
        queue.complete(calls[number], [])
    assert leave(queue) == []
    queue.complete(calls[0], [])
    assert leave(queue, 1) == [0] and leave(queue) == [1]
    queue.complete(calls[2], [])
    assert leave(queue) == [2, 3] and queue.is_empty


def test_unordered_answers_leave_as_they_come() -> None:
    queue, calls = queue_of(4, ordered=False)
    for number in (3, 1):
        queue.complete(calls[number], [])
    assert leave(queue, 1) == [3] and leave(queue) == [1] and queue.size == 2


@pytest.mark.parametrize("ordered", [True, False])
def test_nothing_passes_a_watermark(ordered: bool) -> None:
    queue, calls = queue_of(2, ordered)
    queue.add_watermark(10)
    behind = Call(2, calls[0].origin, 2, None)
    queue.add(behind)
    queue.complete(behind, [])
    queue.complete(calls[1], [])
    assert leave(queue) == ([] if ordered else [1]) and queue.pop_watermark() is None
    queue.complete(calls[0], [])
    assert leave(queue) == ([0, 1] if ordered else [0])
    assert queue.pop_watermark() == 10 and queue.pop_watermark() is None
    assert leave(queue) == [2] and queue.is_empty


def test_watermarks_without_a_row_between_them_are_one() -> None:
    queue, calls = queue_of(1, ordered=False)
    queue.add_watermark(10)
    queue.add_watermark(20)
    assert queue.watermarks() == [(1, 20)]
    queue.complete(calls[0], [])
    leave(queue)
    assert queue.pop_watermark() == 20 and queue.is_empty


def test_a_queue_is_full_until_answers_have_left() -> None:
    queue, calls = queue_of(2, ordered=False, capacity=2)
    assert queue.is_full
    queue.complete(calls[0], [])
    assert queue.is_full
    leave(queue)
    assert not queue.is_full


def test_few_rows_do_not_keep_their_batches() -> None:
    queue = CallQueue(4, ordered=False)
    first = Call(0, queue.add_batch(BATCH, "edge"), 5, None)
    queue.add(first)
    for number in range(1, 30):
        call = Call(number, queue.add_batch(BATCH, "edge"), 0, None)
        queue.add(call)
        queue.complete(call, [])
        leave(queue)
    assert first.origin.batch.num_rows < 20 and queue._kept_rows < 8 * (4 + 20)
    assert rows_of(by_edge(queue.calls())["edge"]).to_pydict() == {"n": [5]}
