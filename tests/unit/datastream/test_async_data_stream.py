"""Calls of slow services are checked where they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    BlockingFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    RetryPredicate,
)


class Good(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class NotAsync(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> Any:
        return [value]


class Yields(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        yield value


class WithFuture(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any, result_future: Any) -> Any:  # type: ignore[override]
        result_future.complete([value])


class AsyncTimeout(Good):
    async def timeout(self, value: Any) -> Any:  # type: ignore[override]
        return [value]


class Blocks(BlockingFunction[Any, Any]):
    def invoke(self, value: Any) -> list[Any]:
        return [value]


class BlocksAsync(BlockingFunction[Any, Any]):
    async def invoke(self, value: Any) -> Any:  # type: ignore[override]
        return [value]


class BlocksYielding(BlockingFunction[Any, Any]):
    def invoke(self, value: Any) -> Any:
        yield value


def stream() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env._declared.is_used = True
    return env.from_collection([1, 2], Types.LONG())


def wait(function: Any, timeout: Any = Time.seconds(1), **more: Any) -> Any:
    return AsyncDataStream.unordered_wait(stream(), function, timeout, **more)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (NotAsync(), r"NotAsync.async_invoke\(\) should be declared as 'async def'"),
        (Yields(), r"Yields.async_invoke\(\) yields, so it would answer more than once: return a list"),
        (
            WithFuture(),
            r"calls WithFuture.async_invoke with \(value\), and it is defined with \(value, result_future\)",
        ),
        (AsyncTimeout(), r"AsyncTimeout.timeout\(\) is declared as 'async def', but is called without await"),
        (BlocksAsync(), r"BlocksAsync.invoke\(\) is declared as 'async def'"),
        (BlocksYielding(), r"BlocksYielding.invoke\(\) yields"),
        (Good, r"write Good\(\)"),
        (7, r"takes an AsyncFunction, a BlockingFunction or a function of a row, got 7"),
        (lambda a, b: [], r"is defined with \(a, b\)"),
    ],
)
def test_functions_that_cannot_be_called_are_refused(function: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        wait(function)


async def coroutine(value: Any) -> list[Any]:
    return [value]


@pytest.mark.parametrize("function", [Good(), Blocks(), coroutine, lambda value: [value]])
def test_functions_of_each_kind_are_accepted(function: Any) -> None:
    made = wait(function, Duration.of_seconds(1), capacity=3, output_type=Types.LONG())
    spec = made._inputs[0].node.function
    assert (spec.timeout_ms, spec.capacity, spec.ordered) == (1000, 3, False)
    assert spec.is_blocking == (not isinstance(function, Good) and function is not coroutine)
    assert made.get_name() == "async wait operator"


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"capacity": 0}, ValueError, "capacity is a whole number of at least 1, got 0"),
        ({"capacity": 2.5}, ValueError, "got 2.5"),
        ({"timeout": 5000}, TypeError, r"the timeout is a Time, e.g. Time.seconds\(5\), got 5000"),
        ({"output_type": int}, TypeError, r"Types.LONG\(\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        wait(Good(), **arguments)


def test_retries_need_a_timeout_and_predicates_of_one_argument() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 10, empty_result_predicate, None)
    with pytest.raises(ValueError, match="calls that are repeated need a timeout above 0"):
        AsyncDataStream.ordered_wait_with_retry(stream(), Good(), Time.seconds(0), strategy)
    with pytest.raises(TypeError, match="retry strategy is an AsyncRetryStrategy, got None"):
        AsyncDataStream.ordered_wait_with_retry(stream(), Good(), Time.seconds(1), None)  # type: ignore[arg-type]
    wrong: Any = AsyncRetryStrategy.fixed_delay(1, 10, None, exception_type_predicate)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected_error_type"):
        AsyncDataStream.unordered_wait_with_retry(stream(), Good(), Time.seconds(1), wrong)
    AsyncDataStream.unordered_wait_with_retry(stream(), Good(), Time.seconds(0), AsyncRetryStrategy.no_restart())


def test_a_timeout_of_zero_is_none() -> None:
    assert wait(Good(), Time.seconds(0))._inputs[0].node.function.timeout_ms is None


def test_the_time_between_calls_follows_from_their_number() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(3, 10, 50, 2.0, None, has_exception_predicate)
    assert isinstance(strategy, ExponentialBackoffDelayRetryStrategy)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 5, 1)] == [10, 20, 40, 50, 50, 10]
    assert [strategy.can_retry(n) for n in (1, 3, 4)] == [True, True, False]
    assert not NO_RETRY_STRATEGY.can_retry(1) and NO_RETRY_STRATEGY.get_backoff_time_millis(1) == -1


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (True, 1), ("1", 1)])
def test_strategies_need_numbers_above_zero(numbers: Any) -> None:
    with pytest.raises(ValueError, match="of a retry strategy is a number above 0"):
        FixedDelayRetryStrategy(numbers[0], numbers[1], None, None)


def test_predicates() -> None:
    assert empty_result_predicate([]) and empty_result_predicate(None) and not empty_result_predicate([0])  # type: ignore[arg-type]
    assert has_exception_predicate(OSError()) and exception_type_predicate(OSError(), OSError)
    with pytest.raises(TypeError, match="result predicate of a retry strategy is a function or None"):
        RetryPredicate(7, None)  # type: ignore[arg-type]
