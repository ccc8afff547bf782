"""Tracks how far event time is in a subtask.

`current_ms` is what operators see; `emitted_ms` is what has been sent downstream. The second follows the first when all
timers up to it have fired, so that nothing that a timer emits is late. No key sees time run backwards: a key group
whose former owner was further has a floor, until the subtask has passed it.
"""

from __future__ import annotations

from typing import Callable, Iterable

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.metadata import GroupFloor


class EventTime:
    def __init__(self) -> None:
        self.current_ms = WATERMARK_MIN_MS
        self.emitted_ms = WATERMARK_MIN_MS
        self.on_advance: Callable[[], None] | None = None
        """Called when time has advanced, before anything can be snapshot."""
        self._floors: dict[int, int] = {}
        self._advanced: frozenset[int] = frozenset()

    def restore(self, current_ms: int, emitted_ms: int, floors: Iterable[GroupFloor]) -> None:
        """Resume from a checkpoint. `floors`: of a rescaled subtask, the time that each key group had reached; else the
        floors that it had.
        """
        self.current_ms = current_ms
        self.emitted_ms = emitted_ms
        reached = {group: floor.watermark_ms for floor in floors for group in range(floor.first, floor.end)}
        self._floors = {group: floor for group, floor in reached.items() if floor > current_ms}
        self._advanced = frozenset(group for group, floor in reached.items() if floor < current_ms)

    def advance(self, watermark_ms: int) -> None:
        """Raise the time to `watermark_ms`; it never falls."""
        if watermark_ms <= self.current_ms:
            return
        self.current_ms = watermark_ms
        if self._floors:
            self._floors = {group: floor for group, floor in self._floors.items() if floor > watermark_ms}
        if self.on_advance is not None:
            self.on_advance()

    @property
    def behind(self) -> bool:
        """Return whether timers may be due, and the watermark is still to be sent downstream."""
        return self.emitted_ms < self.current_ms

    def of_group(self, key_group: int) -> int:
        """Return the time that rows and timers of a key group see."""
        return max(self.current_ms, self._floors.get(key_group, WATERMARK_MIN_MS)) if self._floors else self.current_ms

    def advanced_by_restore(self, key_group: int) -> bool:
        """Return whether the restore itself has advanced a key group's time: its new owner is further than the old one
        was.
        """
        return key_group in self._advanced

    def floors(self) -> list[GroupFloor]:
        """Return the floors as a snapshot stores them: runs of adjacent groups."""
        runs: list[GroupFloor] = []
        for group, floor_ms in sorted(self._floors.items()):
            if runs and runs[-1].end == group and runs[-1].watermark_ms == floor_ms:
                runs[-1] = GroupFloor(runs[-1].first, group + 1, floor_ms)
            else:
                runs.append(GroupFloor(group, group + 1, floor_ms))
        return runs
