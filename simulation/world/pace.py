"""Holds the speed of a simulated world, the storage of its jobs, and the limits of a run."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.limits import Limits
from simulation.world.small_limits import SMALL

CHECKPOINT_ROOT = "/checkpoints"
SAVEPOINT_ROOT = "/savepoints"


@dataclass(frozen=True)
class Pace:
    """Holds the maximum durations, in ms: each duration is drawn from 0 to about so much. `upload_ms`: the least and
    the most for a segment that is stored next to others.
    """

    step_ms: float = 0.1
    data_ms: float = 1.0
    control_ms: float = 1.0
    work_ms: float = 2.0
    slot_start_ms: float = 50.0
    bytes_share: float = 0.0
    control_as_bytes: bool = False
    scale: Limits = SMALL
    upload_ms: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Bounds:
    """Limits a run: beyond them it counts as hanging."""

    events_max: int = 250_000
    ms_max: float = 900_000.0
