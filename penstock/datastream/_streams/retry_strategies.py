"""Defines retry strategies of async functions, and what they are derived from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Generic, TypeVar

OUT = TypeVar("OUT")
ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Tells after which ends of a call an async function is called again."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return the function that gets the returned list, and returns True to call again; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return the function that gets the raised exception, and returns True to call again; None: never."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Tells whether, and after which time, an async function is called again for a row."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another call may follow.

        Args:
            current_attempts: The number of calls for the row so far, from 1.

        Returns:
            True for another call.
        """

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time until the next call, in milliseconds.

        Args:
            current_attempts: The number of calls for the row so far, from 1.

        Returns:
            The time.
        """

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the predicate of the ends of a call that are followed by another call."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Return the strategy that never calls again."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return a strategy with the same time between all calls.

        Args:
            max_attempts: The greatest number of further calls, besides the first.
            backoff_time_millis: The time between two calls, in milliseconds.
            result_predicate: Gets the returned list, and returns True to call again; None: never.
            exception_predicate: Gets the raised exception, and returns True to call again; None: never.

        Returns:
            The strategy.

        Raises:
            ValueError: A number is not above 0.
        """
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return a strategy whose time between calls grows.

        Args:
            max_attempts: The greatest number of further calls, besides the first.
            initial_delay: The time between the first two calls, in milliseconds.
            max_retry_delay: The greatest time between two calls, in milliseconds.
            multiplier: The factor from one time to the next.
            result_predicate: Gets the returned list, and returns True to call again; None: never.
            exception_predicate: Gets the raised exception, and returns True to call again; None: never.

        Returns:
            The strategy.

        Raises:
            ValueError: A number is not above 0.
        """
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """Holds two predicates.

    Args:
        result_predicate: Gets the returned list, and returns True to call again; None: never.
        exception_predicate: Gets the raised exception, and returns True to call again; None: never.
    """

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        for name, predicate in (("result", result_predicate), ("exception", exception_predicate)):
            if predicate is not None and not callable(predicate):
                raise TypeError(
                    f"the {name} predicate of a retry strategy is a function or None, got {predicate!r:.80}"
                )
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        """Return the predicate of returned lists; None without one."""
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        """Return the predicate of raised exceptions; None without one."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Calls never again."""

    def can_retry(self, current_attempts: int) -> bool:
        """Return False.

        Args:
            current_attempts: The number of calls for the row so far.

        Returns:
            False.
        """
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1: there is no time until the next call.

        Args:
            current_attempts: The number of calls for the row so far.

        Returns:
            -1.
        """
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return a predicate without functions."""
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Lets the same time pass between all calls for a row.

    Args:
        max_attempts: The greatest number of further calls, besides the first.
        backoff_time_millis: The time between two calls, in milliseconds.
        result_predicate: Gets the returned list, and returns True to call again; None: never.
        exception_predicate: Gets the raised exception, and returns True to call again; None: never.

    Raises:
        ValueError: A number is not above 0.
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _above_zero(max_attempts=max_attempts, backoff_time_millis=backoff_time_millis)
        self._max_attempts = max_attempts
        self._backoff_time_millis = backoff_time_millis
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another call may follow.

        Args:
            current_attempts: The number of calls for the row so far, from 1.

        Returns:
            True up to the greatest number.
        """
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time until the next call, in milliseconds.

        Args:
            current_attempts: The number of calls for the row so far.

        Returns:
            The time.
        """
        return self._backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the two predicates."""
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Lets more time pass between two calls for a row with each call.

    The time follows from the number of calls for this row alone. (In PyFlink all rows of a subtask share the last time,
    so rows that fail together wait for times of each other.)

    Args:
        max_attempts: The greatest number of further calls, besides the first.
        initial_delay: The time between the first two calls, in milliseconds.
        max_retry_delay: The greatest time between two calls, in milliseconds.
        multiplier: The factor from one time to the next.
        result_predicate: Gets the returned list, and returns True to call again; None: never.
        exception_predicate: Gets the raised exception, and returns True to call again; None: never.

    Raises:
        ValueError: A number is not above 0.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _above_zero(
            max_attempts=max_attempts,
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        self._max_attempts = max_attempts
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another call may follow.

        Args:
            current_attempts: The number of calls for the row so far, from 1.

        Returns:
            True up to the greatest number.
        """
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time until the next call, in milliseconds.

        Args:
            current_attempts: The number of calls for the row so far, from 1.

        Returns:
            The time, at most `max_retry_delay` from the second on.
        """
        delay: float = self._initial_delay
        for _ in range(current_attempts - 1):
            grown = min(delay * self._multiplier, self._max_retry_delay)
            if grown == delay:
                break
            delay = grown
        return int(delay)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the two predicates."""
        return self._predicate


def _above_zero(**numbers: float) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or number <= 0:
            raise ValueError(f"{name} of a retry strategy is a number above 0, got {number!r:.80}")


NO_RETRY_STRATEGY: NoRetryStrategy[Any] = NoRetryStrategy()
