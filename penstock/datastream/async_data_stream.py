"""Defines AsyncDataStream, which applies functions that call slow services."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Callable

from penstock.common.program.signatures import check_call
from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams.called_functions import as_called_function
from penstock.datastream._streams.type_variables import In, Out
from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import AsyncFunction, AsyncRetryStrategy, BlockingFunction
from penstock.graph.declared_functions import AsyncSpec
from penstock.graph.logical import OperatorKind

__all__ = ["AsyncDataStream"]

CalledFunction = (
    AsyncFunction[In, Out]
    | BlockingFunction[In, Out]
    | Callable[[In], Awaitable[list[Out]]]
    | Callable[[In], list[Out]]
)

_NAME = "async wait operator"


class AsyncDataStream:
    """Applies functions that call slow services, for many rows at a time.

    A row that waits for its answer is part of every checkpoint, and so is an answer that has come and not been emitted
    yet. After a failure only rows without an answer are asked for again. Watermarks keep their place behind the rows
    that came before them.

    Example:
        class Enrich(AsyncFunction):
            async def async_invoke(self, value):
                return [(value, await price_of(value))]

        enriched = AsyncDataStream.unordered_wait(orders, Enrich(), Time.seconds(5), capacity=1000)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[In],
        async_function: CalledFunction[In, Out],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Out]:
        """Call a function for each row, and emit answers as they come, within the same watermark.

        Args:
            data_stream: The stream.
            async_function: An `AsyncFunction`, a `BlockingFunction` for a library that blocks, a coroutine function, or
                a function, which is called in threads.
            timeout: The time for a row; then the function's `timeout` answers. 0: no limit.
            capacity: The greatest number of rows that each subtask has under way.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows, each with the timestamp of its row. It is not keyed.

        Raises:
            TypeError: An argument is of the wrong type, or the function cannot be called with a row.
            ValueError: The capacity is below 1.
        """
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, False)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[In],
        async_function: CalledFunction[In, Out],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Out]:
        """Call a function for each row, again where a strategy says so, and emit answers as they come.

        Args:
            data_stream: The stream.
            async_function: As in `unordered_wait`.
            timeout: The time for all calls of a row together, above 0.
            async_retry_strategy: Tells after which ends, how often and when to call again.
            capacity: The greatest number of rows that each subtask has under way.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows, each with the timestamp of its row. It is not keyed.

        Raises:
            TypeError: An argument is of the wrong type, or the function cannot be called with a row.
            ValueError: The capacity is below 1, or there is no timeout.
        """
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[In],
        async_function: CalledFunction[In, Out],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Out]:
        """Call a function for each row, and emit the answers in the order of the rows.

        Args:
            data_stream: The stream.
            async_function: As in `unordered_wait`.
            timeout: The time for a row; then the function's `timeout` answers. 0: no limit.
            capacity: The greatest number of rows that each subtask has under way, or answered behind one that is.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows, each with the timestamp of its row. It is not keyed.

        Raises:
            TypeError: An argument is of the wrong type, or the function cannot be called with a row.
            ValueError: The capacity is below 1.
        """
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, True)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[In],
        async_function: CalledFunction[In, Out],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Out]:
        """Call a function for each row, again where a strategy says so, and emit the answers in the order of the rows.

        Args:
            data_stream: The stream.
            async_function: As in `unordered_wait`.
            timeout: The time for all calls of a row together, above 0.
            async_retry_strategy: Tells after which ends, how often and when to call again.
            capacity: The greatest number of rows that each subtask has under way, or answered behind one that is.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows, each with the timestamp of its row. It is not keyed.

        Raises:
            TypeError: An argument is of the wrong type, or the function cannot be called with a row.
            ValueError: The capacity is below 1, or there is no timeout.
        """
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, True)


def _wait(
    data_stream: Any,
    function: Any,
    timeout: Any,
    retry: Any,
    capacity: Any,
    output_type: TypeInformation | None,
    ordered: bool,
) -> DataStream[Any]:
    if not isinstance(data_stream, DataStream):
        raise TypeError(f"{_NAME}: the first argument is a DataStream, got {data_stream!r:.80}")
    called = as_called_function(function, _NAME)
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(f"{_NAME}: the capacity is a whole number of at least 1, got {capacity!r:.80}")
    timeout_ms = _milliseconds(timeout)
    _check_retry(retry, timeout_ms)
    spec = AsyncSpec(called, timeout_ms if timeout_ms > 0 else None, capacity, retry, ordered)
    return data_stream._then(OperatorKind.ASYNC_WAIT, _NAME, spec, output_type)


def _milliseconds(timeout: Any) -> int:
    if isinstance(timeout, Time):
        return timeout.to_milliseconds()
    if isinstance(timeout, Duration):
        return timeout.to_millis()
    raise TypeError(f"{_NAME}: the timeout is a Time, e.g. Time.seconds(5), got {timeout!r:.80}")


def _check_retry(retry: Any, timeout_ms: int) -> None:
    if not isinstance(retry, AsyncRetryStrategy):
        raise TypeError(f"{_NAME}: the retry strategy is an AsyncRetryStrategy, got {retry!r:.80}")
    if retry is not NO_RETRY_STRATEGY and timeout_ms <= 0:
        raise ValueError(f"{_NAME}: calls that are repeated need a timeout above 0, e.g. Time.seconds(30)")
    predicate = retry.get_retry_predicate()
    if predicate is None:
        raise TypeError(f"{_NAME}: get_retry_predicate() of {type(retry).__name__} returns None")
    for name in ("result_predicate", "exception_predicate"):
        found = getattr(predicate, name)()
        if found is None:
            continue
        if not callable(found) or inspect.iscoroutinefunction(found):
            raise TypeError(f"{_NAME}: the {name} of {type(retry).__name__} is a function or None, got {found!r:.80}")
        check_call(f"{_NAME}: the retry strategy", found, ["result" if name == "result_predicate" else "error"])
