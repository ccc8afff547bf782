"""Defines TimeDomain."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """Names the clock that a timer follows."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
