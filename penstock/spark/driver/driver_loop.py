"""Runs the driver's loop: one thread in which everything that concerns the JobMaster happens, in order."""

from __future__ import annotations

import logging
import queue
import threading
from functools import partial
from typing import Any, Callable, Protocol

from penstock.common.clock import Clock

log = logging.getLogger(__name__)


class TimedMachine(Protocol):
    def next_deadline_ms(self) -> float | None: ...
    def on_time(self, now_ms: float) -> Any: ...
    def after_event(self) -> Any:
        """Finish a call or `on_time`; called after each."""


class DriverLoop:
    """Runs calls one after the other, and calls `on_time` when it is due. Any thread may `post(call)`.

    An error that escapes a call is a bug of ours: it is passed to `on_error`, once per error, and the loop continues.
    """

    def __init__(self, clock: Clock, on_error: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._on_error = on_error
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._machine: TimedMachine | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-driver", daemon=True)

    def start(self, machine: TimedMachine) -> None:
        self._machine = machine
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def post(self, call: Callable[[], Any]) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        """End the loop after what has been posted. Does not wait."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        if threading.current_thread() is not self._thread and self.is_started:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        machine, clock = self._machine, self._clock
        assert machine is not None
        while True:
            # Asked for once per event, because it costs as much as a small event.
            deadline_ms = machine.next_deadline_ms()
            wait_s = None if deadline_ms is None else max(0.0, deadline_ms - clock.monotonic_ms()) / 1000
            try:
                call = self._calls.get(timeout=wait_s)
                if call is None:
                    return
            except queue.Empty:
                call = _nothing
            try:
                call()
                if deadline_ms is not None and deadline_ms <= (now_ms := clock.monotonic_ms()):
                    machine.on_time(now_ms)
                machine.after_event()
            except Exception as error:
                log.exception("an error of Penstock's own in the driver")
                self._on_error(error)


def _nothing() -> None:
    """Do nothing; called when only time has passed."""


class OrderedWork:
    """Implements `penstock.jobmaster.ports.BlockingWork` with one thread; results come back into the loop."""

    def __init__(self, loop: DriverLoop, name: str = "penstock-work") -> None:
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[str, Callable[[], Any], Callable[[Any], None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._queue.put((name, work, done))

    def stop(self) -> None:
        """End the thread after what has been submitted. Does not wait."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            name, work, done = item
            try:
                result = work()
            except Exception as error:
                log.debug("%s: %s", name, error)
                result = error
            self._loop.post(partial(done, result))
