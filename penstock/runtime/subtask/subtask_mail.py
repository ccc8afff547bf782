"""What arrives in a subtask's mailbox beside frames, and what a step says of itself."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.protocol.values.elements import Barrier


class Triggered(msgspec.Struct, frozen=True):
    barrier: Barrier


class CheckpointOver(msgspec.Struct, frozen=True):
    """`aborted` False: it is canonical."""

    checkpoint_id: int
    aborted: bool


class Splits(msgspec.Struct, frozen=True):
    splits: list[bytes]
    no_more: bool


class Released(msgspec.Struct, frozen=True):
    """The generation runs: user code may be called."""


class Unpark(msgspec.Struct, frozen=True):
    checkpoint_id: int


class StepResult(NamedTuple):
    """`wait_ms`: call again after that long, or when there is mail; 0 at once, None only when there is mail."""

    worked: bool
    wait_ms: float | None
    backpressured: bool
