"""Provides ports of a JobMaster that a test moves by hand: clock, work, console, and stores by directory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.store import DirectoryMissing, ObjectStore


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def undisturbed_ms(self) -> float:
        return self.monotonic_ms()

    def wall_ms(self) -> int:
        return 1_000_000 + int(self.now_ms)


class QueuedWork:
    """Does its work when `run` is called; `is_paused` leaves it waiting."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[str, Callable[[], Any], Callable[[Any], None]]] = deque()
        self.is_paused = False

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((name, work, done))

    def run_one(self) -> bool:
        if not self.waiting:
            return False
        _, work, done = self.waiting.popleft()
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)
        return True


class RecordedConsole:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str, bool]] = []
        self.warnings: list[str] = []

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        self.lines.append((subtask, text, is_error))

    def warning(self, text: str) -> None:
        self.warnings.append(text)


class Directories:
    """Stores by directory."""

    def __init__(self) -> None:
        self.stores: dict[str, MemoryStore] = {}

    def open(self, directory: str, create: bool) -> ObjectStore:
        if directory not in self.stores:
            if not create:
                raise DirectoryMissing(f"checkpoint directory {directory} does not exist here")
            self.stores[directory] = MemoryStore()
        return self.stores[directory]


class MixedDirectories(Directories):
    """Stores by directory: those of a file system below `root`, all others in memory."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = str(root)

    def open(self, directory: str, create: bool) -> ObjectStore:
        if directory.startswith(self._root):
            return LocalStore(directory, create_root=create)
        return super().open(directory, create)
