"""Defines CompletableFuture, a result that comes later."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Callable, Generator, Generic, TypeVar

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """Holds a result that comes later, for threads (`result()`) and coroutines (`await`).

    It is completed once, by the side that made it; later calls of `set_result` and `set_exception` have no effect. To
    give up awaiting it, as `asyncio.wait_for` does, changes nothing of it.

    Args:
        cancellable: False if others rely on its result, so that `cancel` has no effect.
    """

    def __init__(self, cancellable: bool = True) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._future.set_running_or_notify_cancel()  # asyncio would cancel it with whatever awaits it
        self._cancellable = cancellable
        self._cancelled = False

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        """Make a future that has its result already.

        Args:
            value: The result.

        Returns:
            The future.
        """
        future = cls()
        future.set_result(value)
        return future

    def cancel(self) -> bool:
        """Cancel the future, so that its result is `CancelledError`.

        This does not cancel a job: see `JobClient.cancel`.

        Returns:
            False if it was complete, or cannot be cancelled, because it is the result of a job.
        """
        if self._cancellable and self.set_exception(concurrent.futures.CancelledError()):
            self._cancelled = True
        return self._cancelled

    def cancelled(self) -> bool:
        """Return True if the future was cancelled."""
        return self._cancelled

    def done(self) -> bool:
        """Return True if the future has a result or an error, or was cancelled."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result. Raises the error if there is one instead.

        Args:
            timeout: How many seconds to wait at most; then TimeoutError is raised. None: no limit.

        Returns:
            The result.
        """
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the future is complete.

        Args:
            timeout: How many seconds to wait at most; then TimeoutError is raised. None: no limit.

        Returns:
            The error, or None if there is a result.
        """
        return self._future.exception(timeout)

    def set_result(self, result: T) -> bool:
        """Complete the future with a result.

        Args:
            result: The result.

        Returns:
            False if it was complete already.
        """
        return self._complete(lambda: self._future.set_result(result))

    def set_exception(self, exception: BaseException) -> bool:
        """Complete the future with an error.

        Args:
            exception: The error.

        Returns:
            False if it was complete already.
        """
        return self._complete(lambda: self._future.set_exception(exception))

    def _complete(self, action: Callable[[], Any]) -> bool:
        try:
            action()
        except concurrent.futures.InvalidStateError:
            return False
        return True

    def add_done_callback(self, callback: Callable[[CompletableFuture[T]], Any]) -> None:
        """Call a function on completion of the future.

        It is called in the thread that completes the future, or at once if it is complete already.

        Args:
            callback: A function of this future.
        """
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()
