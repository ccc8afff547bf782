"""Tracks the progress of event time in a subtask.

`current_ms` is what operators see; `emitted_ms` is what has been sent downstream. The second follows the first when all
timers up to it have fired, so that nothing that a timer emits is late. No key sees time run backwards: a key group
whose former owner was further has a floor, until the subtask has passed it.
"""

from __future__ import annotations

from typing import Iterable

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.metadata import GroupFloor


class EventTime:
    def __init__(self) -> None:
        self.current_ms = WATERMARK_MIN_MS
        self.emitted_ms = WATERMARK_MIN_MS
        self._floors: dict[int, int] = {}

    def restore(self, current_ms: int, emitted_ms: int, floors: Iterable[GroupFloor]) -> None:
        self.current_ms = current_ms
        self.emitted_ms = emitted_ms
        self._floors = {
            group: floor.watermark_ms
            for floor in floors
            for group in range(floor.first, floor.end)
            if floor.watermark_ms > current_ms
        }

    def advance(self, watermark_ms: int) -> None:
        """Raise the time to `watermark_ms`; it never falls."""
        if watermark_ms <= self.current_ms:
            return
        self.current_ms = watermark_ms
        if self._floors:
            self._floors = {group: floor for group, floor in self._floors.items() if floor > watermark_ms}

    @property
    def behind(self) -> bool:
        """Return whether timers may be due, and the watermark is still to be sent downstream."""
        return self.emitted_ms < self.current_ms

    def of_group(self, key_group: int) -> int:
        """Return the time that rows and timers of a key group see."""
        # 5.3: no key group sees a time below the one that it has seen.
        return max(self.current_ms, self._floors.get(key_group, WATERMARK_MIN_MS)) if self._floors else self.current_ms

    def floors(self) -> list[GroupFloor]:
        """Return the floors as a snapshot stores them: runs of adjacent groups."""
        runs: list[GroupFloor] = []
        for group, floor_ms in sorted(self._floors.items()):
            if runs and runs[-1].end == group and runs[-1].watermark_ms == floor_ms:
                runs[-1] = GroupFloor(runs[-1].first, group + 1, floor_ms)
            else:
                runs.append(GroupFloor(group, group + 1, floor_ms))
        return runs
