"""Interruptions find functions that lose rows, and those that keep what no checkpoint has."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.types import Types
from penstock.datastream import KeyedProcessFunction, MapFunction, ValueStateDescriptor
from penstock.testing import Advance, At, OperatorFailure, Watermark, verify_operator
from penstock.testing.verifying import Way, ways

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Numbered(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


class NumberedInMemory(KeyedProcessFunction):
    """Forgets its counts in each restart."""

    def open(self, runtime_context: Any) -> None:
        self.counts: dict[str, int] = {}

    def process_element(self, value: str, ctx: Any) -> Any:
        self.counts[value] = self.counts.get(value, 0) + 1
        yield value, self.counts[value]


def test_the_results_of_a_plain_run_come_back() -> None:
    found = verify_operator(
        lambda words: words.key_by(lambda word: word).process(Numbered(), PAIR),
        ["a", "b", "a"],
        types=Types.STRING(),
        expected=[("a", 1), ("b", 1), ("a", 2)],
        in_order=True,
    )
    assert found == [("a", 1), ("b", 1), ("a", 2)]


def test_state_outside_of_checkpoints_is_found() -> None:
    with pytest.raises(AssertionError, match=r"with .*checkpoints at each pause, each restored: row 1 is"):
        verify_operator(
            lambda words: words.key_by(lambda word: word).process(NumberedInMemory(), PAIR),
            ["a", "a", "a"],
            types=Types.STRING(),
        )


def test_a_result_that_depends_on_batches_is_found() -> None:
    with pytest.raises(AssertionError, match="with one row at a time"):
        verify_operator(lambda rows: rows.map_batches(lambda batch: batch.slice(0, 1)), [1, 2, 3], types=Types.LONG())


def test_other_results_than_expected_are_told() -> None:
    with pytest.raises(AssertionError, match="with all rows at once, parallelism 1: row 1 is 4, not 5"):
        verify_operator(lambda rows: rows.map(lambda n: 2 * n), [1, 2], expected=[2, 5], parallelisms=[1])


class AfterAMinute(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(60_000)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp


def test_scripts_have_times_watermarks_and_pauses() -> None:
    found = verify_operator(
        lambda rows: rows.key_by(lambda n: n % 2).process(AfterAMinute()),
        [1, At(2, 500), Watermark(400), Advance(70_000)],
        expected=[(0, 60_000), (1, 60_000)],
        parallelisms=[1],
    )
    assert sorted(found) == [(0, 60_000), (1, 60_000)]


class Fails(MapFunction):
    def map(self, value: Any) -> Any:
        raise KeyError(value)


def test_errors_of_functions_come_through() -> None:
    with pytest.raises(OperatorFailure, match="KeyError"):
        verify_operator(lambda rows: rows.map(Fails()), [1])


def test_all_combinations_are_run() -> None:
    found = list(ways([1, 3]))
    interrupted = {(way.one_by_one, way.tiny, way.restarts) for way in found if way.parallelisms == (1,)}
    assert {(one, tiny, restarts) for one in (0, 1) for tiny in (0, 1) for restarts in (0, 1)} <= interrupted
    assert found[0] == Way(False, False, (1,), None, False) and found[-1].parallelisms == (1, 3)
    with pytest.raises(ValueError, match="at least one parallelism"):
        verify_operator(lambda rows: rows, [1], parallelisms=[])
