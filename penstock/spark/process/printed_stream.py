"""Replaces `sys.stdout` and `sys.stderr` in a slot: whole lines go to the driver's terminal, with the subtask they come
from.
"""

from __future__ import annotations

import io
import threading
import time
from typing import Callable, TextIO

from penstock.runtime.process.context import current_subtask

# A program that prints faster than the driver's terminal takes it waits here, as it would on a pipe.
_QUEUED_BYTES_MAX = 4 << 20
_WAIT_S_MAX = 5.0


class PrintedStream(io.TextIOBase):
    """Sends the output of a subtask's threads to `send(subtask, lines, is_error)`, with the subtask's number (from 1,
    as in Flink) before each line; everything else goes to `original`.
    """

    encoding = "utf-8"

    def __init__(
        self,
        original: TextIO,
        send: Callable[[int, list[str], bool], None],
        queued_bytes: Callable[[], int],
        is_error: bool,
    ) -> None:
        self._original = original
        self._send = send
        self._queued_bytes = queued_bytes
        self._is_error = is_error
        self._line = threading.local()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._original.fileno()

    def write(self, text: str) -> int:
        subtask = current_subtask()
        if subtask is None:
            return self._original.write(text)
        *lines, rest = (getattr(self._line, "begun", "") + text).split("\n")
        self._line.begun = rest
        if lines:
            self._wait_for_room()
            self._send(subtask, [f"{subtask + 1}> {line}" for line in lines], self._is_error)
        return len(text)

    def flush(self) -> None:
        if current_subtask() is None:
            self._original.flush()

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + _WAIT_S_MAX
        while self._queued_bytes() > _QUEUED_BYTES_MAX and time.monotonic() < deadline:
            time.sleep(0.002)
