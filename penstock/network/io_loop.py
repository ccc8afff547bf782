"""Runs the I/O thread: one selector, timers, and a socketpair by which other threads wake it.

It never runs user code and never waits for anything but its selector. If a handler raises, the error is logged and the
loop continues.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from typing import Any, Callable

log = logging.getLogger(__name__)


class IoLoop:
    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], Any]] = deque()
        self._timers: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._drain_wakes)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Run the calls that were queued before, then end the thread (waits at most 5 s for it)."""
        self.call_soon(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    # ---- from any thread

    def call_soon(self, function: Callable[[], Any]) -> None:
        self._calls.append(function)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it wakes up anyway; closed: there is nothing to wake
            self._wake_sender.send(b"\0")

    # ---- in the I/O thread

    def call_later(self, delay_s: float, function: Callable[[], Any]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), function))

    def register(self, sock: socket.socket, events: int, handler: Callable[[int], Any]) -> None:
        self._selector.register(sock, events, handler)

    def modify(self, sock: socket.socket, events: int, handler: Callable[[int], Any]) -> None:
        self._selector.modify(sock, events, handler)

    def unregister(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    def _drain_wakes(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_receiver.recv(4096)

    def _end(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            for key, events in self._selector.select(self._wait_s()):
                self._call(key.data, events)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self._call(heapq.heappop(self._timers)[2])
            for _ in range(len(self._calls)):
                self._call(self._calls.popleft())
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _wait_s(self) -> float | None:
        if self._calls:
            return 0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            log.exception("the I/O thread carries on after an error of its own")
