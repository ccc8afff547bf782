"""Limits the event time by which sources of a group may read ahead of each other (Flink's watermark alignment).

Each source subtask reports its watermark. A source may read as long as its own watermark is at most the smallest one of
its group plus the allowed drift. Idle subtasks, finished ones and those that have not reported yet hold nobody back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.protocol.values.elements import WATERMARK_MAX_MS, SubtaskId


@dataclass(frozen=True)
class AlignedSource:
    """Describes one source: its vertex, its group, and by how much it may be ahead of the group's slowest subtask."""

    vertex: int
    group: str
    max_drift_ms: int


@dataclass(frozen=True)
class LimitWatermarks:
    """Let the subtasks of a vertex read up to this watermark."""

    vertex: int
    watermark_max_ms: int


class WatermarkAlignment:
    """Holds the newest watermarks of one generation's sources."""

    def __init__(self, sources: Sequence[AlignedSource]) -> None:
        self._sources = {source.vertex: source for source in sources}
        self._watermarks: dict[str, dict[SubtaskId, int]] = {source.group: {} for source in sources}
        self._limits: dict[int, int] = {}

    def on_report(self, subtask: SubtaskId, watermark_ms: int | None) -> list[LimitWatermarks]:
        """Note a subtask's watermark; None: it is idle. Returns the limits that have changed."""
        source = self._sources.get(subtask.vertex)
        if source is None:
            return []
        reported = self._watermarks[source.group]
        if watermark_ms is None:
            reported.pop(subtask, None)
        else:
            reported[subtask] = watermark_ms
        return self._changed(source.group)

    def on_end_of_data(self, subtask: SubtaskId) -> list[LimitWatermarks]:
        """Forget a subtask that has read everything. Returns the limits that have changed."""
        return self.on_report(subtask, None)

    def _changed(self, group: str) -> list[LimitWatermarks]:
        slowest_ms = min(self._watermarks[group].values(), default=WATERMARK_MAX_MS)
        changed = []
        for source in self._sources.values():
            if source.group != group:
                continue
            limit_ms = min(slowest_ms + source.max_drift_ms, WATERMARK_MAX_MS)
            if self._limits.get(source.vertex, WATERMARK_MAX_MS) != limit_ms:
                self._limits[source.vertex] = limit_ms
                changed.append(LimitWatermarks(source.vertex, limit_ms))
        return changed
