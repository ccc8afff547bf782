"""Defines the messages of a subtask's mailbox besides frames and those of the JobMaster, and the results of a step."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Unpark(msgspec.Struct, frozen=True):
    """Ends the pause of a subtask: the slot's snapshot writer no longer needs the interpreter for itself."""

    checkpoint_id: int


class StepResult(NamedTuple):
    """Holds a step's result. `wait_ms`: call again after that long, or when there is mail; 0 at once, None only when
    there is mail.
    """

    worked: bool
    wait_ms: float | None
    backpressured: bool
