"""Time behind calls waits for their answers: watermarks, idleness and the end of the data."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream import AsyncDataStream, AsyncFunction, ProcessWindowFunction, TumblingEventTimeWindows
from penstock.testing import Harness


class Seconds(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value)
        return [value]


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield context.window().start, sorted(elements)


def windows_behind_calls(harness: Harness) -> tuple[Any, Any, Any]:
    """Return an input whose rows are called for, one that goes past them, and the contents of windows of both."""
    called, other = harness.source(Types.LONG()), harness.source(Types.LONG())
    answers = AsyncDataStream.unordered_wait(called.stream, Seconds(), Time.seconds(60), 10, Types.LONG())
    both = answers.union(other.stream).key_by(lambda n: 0, Types.LONG())
    return called, other, harness.output(both.window(TumblingEventTimeWindows.of(Time.seconds(1))).process(Contents()))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_watermark_waits_for_the_rows_before_it(restarts: bool) -> None:
    with Harness() as harness:
        called, other, windows = windows_behind_calls(harness)
        called.push(3, 1, timestamp=100)
        called.watermark(999)
        called.push(2, timestamp=1_500)
        other.push(7, timestamp=200)
        other.watermark(1_999)
        if restarts:
            harness.checkpoint(unaligned=True)
            harness.restart()
        harness.advance(2_999)
        assert windows.rows == []
        harness.advance(1)
        assert windows.rows == [(0, [1, 3, 7])]
        called.watermark(1_999)
        assert windows.rows == [(0, [1, 3, 7]), (1_000, [2])]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_subtask_is_not_idle_while_rows_wait(restarts: bool) -> None:
    with Harness() as harness:
        called, other, windows = windows_behind_calls(harness)
        called.push(3, timestamp=100)
        called.idle()
        other.push(7, timestamp=200)
        other.watermark(999)
        if restarts:
            harness.checkpoint(unaligned=True)
            harness.restart()
        harness.advance(2_999)
        assert windows.rows == []
        harness.advance(1)
        assert windows.rows == [(0, [3, 7])], "once it has left nothing holds time back"


def test_who_was_idle_holds_time_back_with_its_next_row() -> None:
    with Harness() as harness:
        called, other, windows = windows_behind_calls(harness)
        called.push(1, timestamp=100)
        called.idle()
        harness.advance(1_000)
        called.push(3, timestamp=300)
        other.watermark(999)
        assert windows.rows == []
        harness.advance(3_000)
        called.watermark(999)
        assert windows.rows == [(0, [1, 3])]


def test_the_end_waits_for_all_answers() -> None:
    with Harness() as harness:
        called, other, windows = windows_behind_calls(harness)
        called.push(3, timestamp=100)
        called.end()
        other.end()
        assert windows.rows == []
        harness.end()
        assert windows.rows == [(0, [3])] and harness.processing_time == 3_000
