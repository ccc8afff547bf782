"""Executes the calls of slow services next to their subtask: in one event loop, or in a thread for each call at once.

All threads are daemons: a call that blocks for ever ends neither a generation's end nor the process's.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from penstock.operators.calls.call_runner import Answered, CallRunner, Invocation
from penstock.runtime.process import context

_CANCELLED_WITHIN_S = 1.0
"""Coroutines that are cancelled get this long to release what they hold."""


def new_call_runner(invocation: Invocation) -> CallRunner:
    """Return the runner of an operator's calls. Implements `NewCallRunner`."""
    return ThreadRunner(invocation) if invocation.blocks else LoopRunner(invocation)


class LoopRunner:
    """Implements `CallRunner` for coroutines, in an event loop with a thread of its own."""

    def __init__(self, invocation: Invocation) -> None:
        self.answered: deque[Answered] = deque()
        self._invocation = invocation
        self._inbox: deque[tuple[int, Any]] = deque()
        """Calls to begin. A call without a coroutine's row (`_GIVE_UP`) is to be cancelled."""
        self._is_poked = self._will_wake = False
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, calls: Sequence[tuple[int, Any]]) -> None:
        self._inbox.extend(calls)
        self._poke()

    def give_up(self, number: int) -> None:
        self._inbox.append((number, _GIVE_UP))
        self._poke()

    def _poke(self) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            name = f"calls of {self._invocation.name}"
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name=name, daemon=True)
            self._thread.start()
        if not self._is_poked:
            self._is_poked = True
            self._loop.call_soon_threadsafe(self._take)

    def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stop_soon)
        self._thread.join(2 * _CANCELLED_WITHIN_S)

    # ---- in the loop's thread -----------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        context.set_current(self._invocation.subtask)
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _take(self) -> None:
        self._is_poked = False
        loop, inbox, tasks = self._loop, self._inbox, self._tasks
        assert loop is not None
        while inbox:
            number, row = inbox.popleft()
            if row is not _GIVE_UP:
                tasks[number] = loop.create_task(self._call(number, row))
            elif (task := tasks.pop(number, None)) is not None:
                task.cancel()

    async def _call(self, number: int, row: Any) -> None:
        result, raised = None, None
        try:
            result = await self._invocation.invoke(row)
        except BaseException as error:  # also what would end the loop, such as SystemExit
            raised = error
        if self._tasks.pop(number, None) is None:
            return  # it was given up
        self.answered.append(Answered(number, result, raised))
        if not self._will_wake:
            self._will_wake = True
            assert self._loop is not None
            # Behind all calls that end in this turn of the loop.
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._will_wake = False
        self._invocation.wake()

    def _stop_soon(self) -> None:
        loop = self._loop
        assert loop is not None
        self._inbox.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        stopping = loop.create_task(self._stop(tasks))
        stopping.add_done_callback(lambda _: loop.stop())

    @staticmethod
    async def _stop(tasks: list[asyncio.Task[None]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCELLED_WITHIN_S)


_GIVE_UP: Any = object()


class ThreadRunner:
    """Implements `CallRunner` for functions that block, with as many threads as there are calls at once.

    A call that is given up keeps its thread until the function returns. So there may be twice as many threads as calls;
    when all of them hang, further calls wait, and are given up without having begun.
    """

    def __init__(self, invocation: Invocation) -> None:
        self.answered: deque[Answered] = deque()
        self._invocation = invocation
        self._inbox: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._threads = 0
        self._threads_max = 2 * invocation.capacity
        self._open: set[int] = set()
        """The calls that have not ended. Those given up are not among them."""
        self._busy = 0
        """The number of calls that wait for a thread, or have one."""
        self._is_closed = False
        self._lock = threading.Lock()

    def begin(self, calls: Sequence[tuple[int, Any]]) -> None:
        with self._lock:
            self._open.update(number for number, _ in calls)
            self._busy += len(calls)
            missing = min(self._busy, self._threads_max) - self._threads
        for _ in range(missing):
            self._threads += 1
            name = f"call {self._threads} of {self._invocation.name}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        for call in calls:
            self._inbox.put(call)

    def give_up(self, number: int) -> None:
        with self._lock:
            self._open.discard(number)

    def close(self) -> None:
        self._is_closed = True
        for _ in range(self._threads):
            self._inbox.put(None)

    def _run(self) -> None:
        context.set_current(self._invocation.subtask)
        while (call := self._inbox.get()) is not None and not self._is_closed:
            number, row = call
            with self._lock:
                is_open = number in self._open
            if is_open:
                self._answer(number, row)
            with self._lock:
                self._busy -= 1

    def _answer(self, number: int, row: Any) -> None:
        result, raised = None, None
        try:
            result = self._invocation.invoke(row)
        except BaseException as error:  # also SystemExit, which is an error of the function like any other
            raised = error
        with self._lock:
            is_open = number in self._open
            self._open.discard(number)
        if is_open:
            self.answered.append(Answered(number, result, raised))
            self._invocation.wake()
