"""Executes calls on a clock that somebody else drives: the simulation, or a test. Nothing here has a thread.

A coroutine runs in an event loop whose time is that clock. So `asyncio.sleep`, `asyncio.wait_for`, locks and futures
work as they do everywhere, and the order of everything follows from the order in which the driver calls back.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Callable

from penstock.operators.calls.call_runner import Answered, Invocation

CallLater = Callable[[float, Callable[[], None]], None]
"""(ms, function): call the function after that time."""


class DrivenLoop(asyncio.AbstractEventLoop):
    """Implements the part of an event loop that needs no sockets, files or threads.

    Args:
        call_later: Calls a function later.
        now_ms: The clock.
    """

    def __init__(self, call_later: CallLater, now_ms: Callable[[], float]) -> None:
        self._call_later_ms = call_later
        self._now_ms = now_ms
        self._is_closed = False
        self.errors: list[BaseException] = []

    def time(self) -> float:
        return self._now_ms() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._call_later_ms(0.0, lambda: self._run(handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._call_later_ms(max(0.0, (when - self.time()) * 1000), lambda: self._run(handle))
        return handle

    def _run(self, handle: asyncio.Handle) -> None:
        if self._is_closed or handle.cancelled():
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            self.errors.append(error)

    async def shutdown_asyncgens(self) -> None: ...


class _Begun(Coroutine[Any, Any, None]):
    """Makes a coroutine in its first step. One that never takes it, because its process was killed, warns of that."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._make = make
        self._made: Coroutine[Any, Any, None] | None = None

    def _coroutine(self) -> Coroutine[Any, Any, None]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine().throw(*error)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def __await__(self) -> Any:
        return self._coroutine().__await__()


class DrivenCalls:
    """Implements `CallRunner`.

    Args:
        delay_ms: Returns how long the next call of a blocking function takes.
    """

    def __init__(
        self,
        invocation: Invocation,
        call_later: CallLater,
        now_ms: Callable[[], float],
        delay_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.answered: deque[Answered] = deque()
        self._invocation = invocation
        self._call_later = call_later
        self._delay_ms = delay_ms
        self._loop = DrivenLoop(call_later, now_ms)  # type: ignore[abstract]
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, object] = {}
        """Blocking calls that have not ended, by number."""
        self._is_closed = False

    def begin(self, calls: Sequence[tuple[int, Any]]) -> None:
        for number, row in calls:
            if self._invocation.blocks:
                self._begin_blocking(number, row)
            else:
                self._tasks[number] = self._loop.create_task(_Begun(partial(self._call, number, row)))

    def _begin_blocking(self, number: int, row: Any) -> None:
        mark = self._begun[number] = object()

        def run() -> None:
            if self._is_closed or self._begun.get(number) is not mark:
                return
            del self._begun[number]
            result, raised = None, None
            try:
                result = self._invocation.invoke(row)
            except BaseException as error:
                raised = error
            self._report(number, result, raised)

        self._call_later(self._delay_ms(), run)

    async def _call(self, number: int, row: Any) -> None:
        result, raised = None, None
        call: Coroutine[Any, Any, Any] = self._invocation.invoke(row)  # type: ignore[assignment]
        try:
            result = await call
        except BaseException as error:
            raised = error
        if self._is_closed or self._tasks.get(number) is not asyncio.current_task(self._loop):
            return
        del self._tasks[number]
        self._report(number, result, raised)

    def _report(self, number: int, result: Any, raised: BaseException | None) -> None:
        self.answered.append(Answered(number, result, raised))
        self._invocation.wake()

    def give_up(self, number: int) -> None:
        self._begun.pop(number, None)
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    def close(self) -> None:
        self._is_closed = True
        for task in self._tasks.values():
            # Nothing runs the loop any more, so nobody hears of what is lost in it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if (coroutine := task.get_coro()) is not None:
                coroutine.close()
        self._tasks.clear()
        self._begun.clear()
        self._loop.close()
