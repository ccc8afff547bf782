"""Defines the events of the JobMaster. See `JobMaster.handle`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.jobmaster.orders import CheckpointAnswer, RescaleOrder, SavepointOrder
from penstock.protocol.values.messages import Message


@dataclass(frozen=True)
class MessageReceived:
    """Delivers a message from the registered connection of the slot process `process`."""

    process: str
    message: Message


@dataclass(frozen=True)
class LinkLost:
    """Reports that the connection of a slot process has ended, or was never answered."""

    process: str
    detail: str


@dataclass(frozen=True)
class CancelRequested:
    """Asks to cancel the job: Ctrl-C, `JobClient.cancel()`. `suspends`: only this driver ends, and leaves log and
    checkpoints as they are, so that the next one resumes the job.
    """

    suspends: bool = False


@dataclass(frozen=True)
class CheckpointRequested:
    """Asks for a checkpoint now, for a user."""

    answer: CheckpointAnswer


@dataclass(frozen=True)
class SavepointRequested:
    """Asks for a savepoint, for a user."""

    order: SavepointOrder


@dataclass(frozen=True)
class RescaleRequested:
    """Asks for another parallelism, for a user."""

    order: RescaleOrder


Event = MessageReceived | LinkLost | CancelRequested | CheckpointRequested | SavepointRequested | RescaleRequested
