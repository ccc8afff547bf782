"""What arrives in a subtask's mailbox beside frames, and what a step says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.protocol.elements import Barrier


@dataclass(frozen=True)
class Triggered:
    barrier: Barrier


@dataclass(frozen=True)
class CheckpointOver:
    """`aborted` False: it is canonical."""

    checkpoint_id: int
    aborted: bool


@dataclass(frozen=True)
class Splits:
    splits: list[bytes]
    no_more: bool


@dataclass(frozen=True)
class Released:
    """The generation runs: user code may be called."""


@dataclass(frozen=True)
class Unpark:
    checkpoint_id: int


class StepResult(NamedTuple):
    """`wait_ms`: call again after that long, or when there is mail; 0 at once, None only when there is mail."""

    worked: bool
    wait_ms: float | None
    backpressured: bool
