"""Describes a savepoint that somebody has asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Alignment(Enum):
    """Says whether a savepoint may hold rows in flight."""

    CONFIGURED = "as the job's checkpoints"
    ALIGNED = "aligned"
    """Holds no rows in flight, so any edge may change before it is restored; waits until they are consumed."""
    UNALIGNED = "unaligned"


@dataclass(frozen=True)
class Savepoint:
    """Identifies a savepoint by its directory, which no other one has.

    Args:
        stops: The job ends with it.
        drains: Before, the sources end and everything is processed, as at the end of bounded data. Only with `stops`.
    """

    directory: str
    alignment: Alignment = Alignment.CONFIGURED
    stops: bool = False
    drains: bool = False
