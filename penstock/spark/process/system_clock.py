"""Reads the real clock."""

from __future__ import annotations

import os
import threading
import time
from io import FileIO

_THREAD_STATISTICS = "/proc/thread-self/schedstat"
"""The statistics of the thread that opens this file (Linux): nanoseconds on a processor, nanoseconds in the queue for
one, time slices."""


class SystemClock:
    """Implements `penstock.common.clock.Clock`."""

    def __init__(self) -> None:
        self._thread = _ThreadStatistics()

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6

    def undisturbed_ms(self) -> float:
        return (time.monotonic_ns() - self._thread.waited_ns()) / 1e6

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _ThreadStatistics(threading.local):
    """Reads the calling thread's wait for a processor; 0 where the system does not tell."""

    _file: FileIO | None

    def __init__(self) -> None:
        try:
            self._file = FileIO(_THREAD_STATISTICS)
        except OSError:
            self._file = None

    def waited_ns(self) -> int:
        if self._file is None:
            return 0
        return int(os.pread(self._file.fileno(), 80, 0).split()[1])
