"""Holds a checkpoint's capture of one channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.protocol.values.elements import InBandEvent
from penstock.protocol.values.frames import Data, Event


class CapturedRows(NamedTuple):
    """Holds rows [first, first + rows) of a channel, which are rows [skip, skip + rows) of `payload`."""

    first: int
    rows: int
    skip: int
    payload: Any


@dataclass(slots=True)
class Captured:
    """Collects the elements of one channel that belong to a checkpoint, in order."""

    rows: list[CapturedRows] = field(default_factory=list)
    events: list[tuple[int, InBandEvent]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.events)

    def add(self, element: Data | Event, start: int, until: int | None) -> None:
        """Adds the part of `element` that lies in [start, until)."""
        if isinstance(element, Event):
            if element.number >= start and (until is None or element.number < until):
                self.events.append((element.number, element.event))
            return
        first = max(element.first, start)
        end = element.first + element.rows
        if until is not None and until < end:
            end = until
        if first < end:
            self.rows.append(CapturedRows(first, end - first, first - element.first, element.payload))

    def trim(self, until: int) -> None:
        """Drops everything from number `until` on."""
        kept = [r for r in self.rows if r.first < until]
        self.rows = [r if r.first + r.rows <= until else r._replace(rows=until - r.first) for r in kept]
        self.events = [e for e in self.events if e[0] < until]
