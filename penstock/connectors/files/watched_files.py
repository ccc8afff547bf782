"""Hands out the files of directories, those that are there and those that come later, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from penstock.connectors.base import SplitEnumerator, decode_split, encode_split


class NewFile(NamedTuple):
    """Holds a file that has been found, with its splits."""

    path: str
    splits: list[bytes]


class WatchedFiles(SplitEnumerator):
    """Looks for files at the start, and again every `interval_ms`.

    A path is read once, whatever becomes of the file later. The paths that have been found are part of each checkpoint.

    Args:
        find: Returns the files whose paths are not among those given, in order. May block.
        interval_ms: The pause between two looks.
        restored: What `snapshot` returned; None at the start of a new job.
    """

    discovers = True

    def __init__(
        self, find: Callable[[Collection[str]], list[NewFile]], interval_ms: float, restored: bytes | None
    ) -> None:
        self.discovery_interval_ms = interval_ms
        state: dict[str, Any] = {"found": [], "splits": []} if restored is None else decode_split(restored)
        self._find = find
        # Replaced, never changed: `discover` reads it in another thread.
        self._found = frozenset(state["found"])
        self._splits = [encode_split(split) for split in state["splits"]]
        self._waiting: deque[int] = deque()
        """The subtasks whose readers have asked and got nothing."""

    def next_splits(self, subtask: int) -> list[bytes] | None:
        if self._splits:
            return [self._splits.pop(0)]
        if subtask not in self._waiting:
            self._waiting.append(subtask)
        return []

    def return_splits(self, splits: list[bytes]) -> None:
        self._splits = [*splits, *self._splits]

    def snapshot(self) -> bytes:
        return encode_split({"found": sorted(self._found), "splits": [decode_split(split) for split in self._splits]})

    def discover(self) -> Sequence[NewFile]:
        return self._find(self._found)

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        self._found |= {file.path for file in found}
        self._splits += [split for file in found for split in file.splits]
        assigned: dict[int, list[bytes]] = {}
        while self._waiting and self._splits:
            assigned[self._waiting.popleft()] = [self._splits.pop(0)]
        return assigned
