"""Holds the metadata of a row on its way through a chain, and marks rows for side outputs."""

from __future__ import annotations

from typing import Any


class CurrentElement:
    """Holds the row or timer that a chain is in the middle of. `timestamp_ms` None: it has no event time."""

    __slots__ = ("timestamp_ms", "event_timer")

    def __init__(self) -> None:
        self.timestamp_ms: int | None = None
        self.event_timer = False


class SideRow:
    """Marks a row for the side output `tag`."""

    __slots__ = ("tag", "value")

    def __init__(self, tag: str, value: Any) -> None:
        self.tag = tag
        self.value = value
