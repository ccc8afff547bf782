"""Gives a time limit to calls of a library that waits for its server without one."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any, Callable, TypeVar

T = TypeVar("T")

HANGING_MAX = 32
"""The most calls that may wait for answers that nobody needs any more."""
_IDLE_S = 60.0


class LimitedCalls:
    """Runs each call in a thread, and waits for it for `limit_s`. The thread of a call that takes longer stays until
    the library returns; its result is dropped.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._idle: list[_Caller] = []
        self._hanging = 0

    def call(self, request: Callable[[], T]) -> T:
        """Return the request's result. Raises what it raises, and TimeoutError, which is an OSError."""
        future: Future[T] = Future()
        with self._lock:
            if self._hanging >= HANGING_MAX:
                raise TimeoutError(f"{self._hanging} earlier requests still have no answer")
            caller = self._idle.pop() if self._idle else _Caller(self._rest, self._retire)
        caller.requests.put((request, future))
        try:
            return future.result(self._limit_s)
        except TimeoutError:
            if future.done():
                return future.result()
        with self._lock:
            self._hanging += 1
        future.add_done_callback(self._returned)
        raise TimeoutError(f"no answer within {self._limit_s:g} s")

    def _returned(self, _: Future[Any]) -> None:
        with self._lock:
            self._hanging -= 1

    def _rest(self, caller: _Caller) -> None:
        with self._lock:
            self._idle.append(caller)

    def _retire(self, caller: _Caller) -> bool:
        """Return whether the thread may end: nobody has just taken it."""
        with self._lock:
            if caller not in self._idle:
                return False
            self._idle.remove(caller)
            return True


class _Caller:
    """Runs one call at a time in a thread that ends when it has been idle for a while."""

    def __init__(self, rest: Callable[[_Caller], None], retire: Callable[[_Caller], bool]) -> None:
        self.requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._rest = rest
        self._retire = retire
        # A daemon: a process that ends does not wait for a server that does not answer.
        threading.Thread(target=self._run, name="hdfs call", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                request, future = self.requests.get(timeout=_IDLE_S)
            except queue.Empty:
                if self._retire(self):
                    return
                continue
            try:
                result = request()
            except BaseException as error:
                self._rest(self)
                future.set_exception(error)
            else:
                self._rest(self)
                future.set_result(result)
            del request, future
