"""Declares the port through which a subtask has its calls executed: by an event loop, or by threads.

`penstock.runtime.process.call_threads` has the real ones; `driven_calls.py` those that a simulation or a test drives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Protocol


class Answered:
    """Reports the end of a call: what the function returned, or the exception that it raised."""

    __slots__ = ("number", "result", "error")

    def __init__(self, number: int, result: Any, error: BaseException | None) -> None:
        self.number = number
        self.result = result
        self.error = error


@dataclass(frozen=True)
class Invocation:
    """Describes the calls of one operator. `invoke(row)`: returns an awaitable, or the result itself if it `blocks`.
    `capacity`: the number of calls at once. `wake`: wakes the subtask; any thread may call it. `name`: the subtask's.
    """

    invoke: Callable[[Any], Awaitable[Any]] | Callable[[Any], Any]
    blocks: bool
    capacity: int
    wake: Callable[[], None]
    name: str
    subtask: int


class CallRunner(Protocol):
    """Executes calls next to the subtask. None of its methods waits for a call."""

    answered: deque[Answered]
    """The calls that have ended since the subtask last looked. Each call that was begun ends here at most once."""

    def begin(self, calls: Sequence[tuple[int, Any]]) -> None:
        """Begin calls: (number, row). A number may be used again once its call has ended."""

    def give_up(self, number: int) -> None:
        """Cancel a call, if it can be. Its end, if there is one, is not reported."""

    def close(self) -> None:
        """Give up all calls, and end. Waits a moment for coroutines that are cancelled, never for blocked ones."""


NewCallRunner = Callable[[Invocation], CallRunner]
