"""Simulates one clock, one queue of events, one random source, and how long parts of lazy restores take."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from random import Random
from typing import Any, Callable

from penstock.common.limits import USUAL, Limits
from simulation.world.local_disk import LocalDisk
from simulation.world.trace import NOTHING, About, TraceLine

_LONGEST_MS = (0.5, 5.0, 50.0)


class LazyRestores:
    """Counts the parts that were loaded next to their subtasks in a run, in `parts`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"lazy restores of {seed}")
        self._longest_ms = self._random.choice(_LONGEST_MS)
        self.parts = 0

    def next_ms(self) -> float:
        """Return the duration of the next part."""
        self.parts += 1
        return self._random.random() * self._longest_ms


class Process:
    """Represents an operating-system process: its events end with it. `after_event` is called after each of them."""

    __slots__ = ("name", "is_alive", "paused_until_ms", "after_event", "wall_skew_ms")

    def __init__(self, name: str, wall_skew_ms: int = 0) -> None:
        self.name = name
        self.is_alive = True
        self.paused_until_ms = 0.0
        self.after_event: Callable[[], None] | None = None
        self.wall_skew_ms = wall_skew_ms

    def pause_until(self, at_ms: float) -> None:
        """Pause the process. A pause within a longer one changes nothing: else what was put off waits for the longer
        one, and what comes later does not."""
        self.paused_until_ms = max(self.paused_until_ms, at_ms)


def of_connections(action: Callable[..., None]) -> Callable[..., None]:
    """Mark an event that the thread of a process's connections executes, concurrently with the steps of the
    others.
    """
    action.of_connections = True  # type: ignore[attr-defined]
    return action


@dataclass
class World:
    """Holds the world. `trace` None: no trace is kept, which is faster. Times are milliseconds since the world
    began.
    """

    seed: int
    trace: list[TraceLine] | None = None
    now_ms: float = 0.0
    events: int = 0
    violations: list[str] = field(default_factory=list)
    interleaves: bool = False
    """True if messages and frames reach a process while a step of its own is busy, as its connections' thread would
    hand them in; else they wait for the end of the step."""
    is_parallel: bool = False
    """True if processes are busy at the same time; else all others wait while one is."""
    upload_ms: tuple[float, float] = (0.0, 1.0)
    """The shortest and the longest time that it takes to store a segment next to others."""
    names_stored_state: bool = False
    """True if checkpoints name the state that earlier ones have stored, where it has not changed."""
    limits: Limits = USUAL
    observer: Callable[..., None] | None = None
    """A callback that steers a scenario: it gets (what, who, details...) of frames and messages as they arrive, and of
    calls of a store before they are executed."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.disk = LocalDisk(self.seed)
        self.lazy_restores = LazyRestores(self.seed)
        self.uniform = self.random.uniform
        self.chance = self.random.random
        self._queue: list[tuple[float, int, Process | None, Callable[..., Any], tuple[Any, ...]]] = []
        self._order = 0
        self.running: Process | None = None
        """The process whose event happens now."""
        self.is_let_in = False
        """True if what happens now has come in the middle of a step."""

    # ---- time ---------------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, process: Process | None, action: Callable[..., Any], *arguments: Any) -> None:
        """Call `action` in `process` (None: outside of all) after that time."""
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._order, process, action, arguments))

    def pass_time(self, elapsed_ms: float) -> None:
        """Keep the present process busy for that long. No other one runs meanwhile, as if the others were starved,
        unless the world is parallel.
        """
        self.now_ms += elapsed_ms
        if self.interleaves and self.running is not None and not self.is_let_in:
            self._let_in(self.running)

    def _let_in(self, process: Process) -> None:
        """Deliver the due frames of a busy process's connections now."""
        queue = self._queue
        due = sorted(e for e in queue if e[2] is process and e[0] <= self.now_ms and hasattr(e[3], "of_connections"))
        if not due:
            return
        orders = {event[1] for event in due}
        queue[:] = [event for event in queue if event[1] not in orders]
        heapq.heapify(queue)
        self.is_let_in = True
        try:
            for *_, action, arguments in due:
                self.events += 1
                action(*arguments)
        finally:
            self.is_let_in = False

    def step(self) -> bool:
        """Let the next event happen. False: there is none."""
        queue = self._queue
        if not queue:
            return False
        at_ms, order, process, action, arguments = heapq.heappop(queue)
        if process is not None:
            if not process.is_alive:
                return True
            if process.paused_until_ms > at_ms:
                heapq.heappush(queue, (process.paused_until_ms, order, process, action, arguments))
                return True
        if at_ms > self.now_ms:
            self.now_ms = at_ms
        self.events += 1
        self.running = process
        action(*arguments)
        if process is not None and process.after_event is not None and process.is_alive:
            process.after_event()
        if self.is_parallel:
            self.now_ms = at_ms
        return True

    # ---- what is seen -------------------------------------------------------------------------------------------

    def tell(self, who: str, what: str, about: About = NOTHING) -> None:
        """Add a line to the trace. Ask `trace is not None` first where the line is costly to make."""
        if self.trace is not None:
            self.trace.append(TraceLine(self.now_ms, who, what, about))

    def violate(self, what: str) -> None:
        self.violations.append(what)
        self.tell("CHECK", what)


class ProcessClock:
    """Shows a process its view of the time. Its monotonic clock starts anywhere; its wall clock is wrong."""

    def __init__(self, world: World, process: Process, monotonic_offset_ms: float) -> None:
        self._world = world
        self._process = process
        self._offset_ms = monotonic_offset_ms

    def monotonic_ms(self) -> float:
        return self._world.now_ms + self._offset_ms

    def undisturbed_ms(self) -> float:
        return self.monotonic_ms()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self._world.now_ms) + self._process.wall_skew_ms

    def jump(self, forward_ms: float) -> None:
        """Suspend the machine: nothing ran, and it is later."""
        self._offset_ms += forward_ms
