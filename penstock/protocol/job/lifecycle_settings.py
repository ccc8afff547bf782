"""Holds the limits of a job's life."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LifecycleSettings:
    """Holds the settings of a job's life. `restore_timeout_ms`: how long state may take to be restored and user code to
    be opened; as long as a checkpoint may take to be written. `leave_timeout_ms`: how long to wait for slots at the end
    before their Spark jobs are cancelled. `spares`: how many processes beyond the slots are spares.
    `slot_timeout_option`: the option that has set `slot_request_timeout_ms`. `slots_min`: in how many slots the job may
    run at least; None: it runs in all.
    """

    slots: int
    slot_request_timeout_ms: float = 300_000.0
    heartbeat_timeout_ms: float = 50_000.0
    cancellation_timeout_ms: float = 180_000.0
    leave_timeout_ms: float = 10_000.0
    restore_timeout_ms: float = 600_000.0
    spares: int = 0
    slot_timeout_option: str = "slot.request.timeout"
    slots_min: int | None = None
