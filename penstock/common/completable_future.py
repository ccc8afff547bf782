"""CompletableFuture: a result that comes later, for threads and for `await`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Callable, Generator, Generic, TypeVar

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """PyFlink's, over a `concurrent.futures.Future`. Whoever makes it completes it once; later calls are ignored."""

    def __init__(self) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        future = cls()
        future.set_result(value)
        return future

    def cancel(self) -> bool:
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the result, `timeout` seconds at the most (TimeoutError), and raises what went wrong."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._future.exception(timeout)

    def set_result(self, result: T) -> bool:
        return self._complete(lambda: self._future.set_result(result))

    def set_exception(self, exception: BaseException) -> bool:
        return self._complete(lambda: self._future.set_exception(exception))

    def _complete(self, action: Callable[[], Any]) -> bool:
        try:
            action()
        except concurrent.futures.InvalidStateError:
            return False
        return True

    def add_done_callback(self, callback: Callable[[CompletableFuture[T]], Any]) -> None:
        """Called in the thread that completes this, or at once."""
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()
