"""Holds the event time that a subtask resumes from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.metadata import GroupFloor


@dataclass(frozen=True)
class RestoredTime:
    """Holds event time to resume from. `current_ms` is what operators see, `emitted_ms` what has been sent
    downstream.
    """

    current_ms: int = WATERMARK_MIN_MS
    emitted_ms: int = WATERMARK_MIN_MS
    floors: tuple[GroupFloor, ...] = ()
    idle: bool = False
