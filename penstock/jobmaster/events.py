"""What the JobMaster is told. See `JobMaster.handle`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.values.messages import Message


@dataclass(frozen=True)
class MessageReceived:
    """From the registered connection of the slot process `process`."""

    process: str
    message: Message


@dataclass(frozen=True)
class LinkLost:
    """The connection of a slot process has ended, or was never answered."""

    process: str
    detail: str


@dataclass(frozen=True)
class CancelRequested:
    """Ctrl-C, `JobClient.cancel()`."""


@dataclass(frozen=True)
class CheckpointRequested:
    """A user asks for a checkpoint now."""


Event = MessageReceived | LinkLost | CancelRequested | CheckpointRequested
