"""Defines the events of the JobMaster: what its slots and users report and ask, how it answers, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.job_execution import CheckpointFailed, RescaleFailed, SavepointFailed
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import Parallelism
from penstock.protocol.driver.row_folders import Release
from penstock.protocol.driver.savepoint import Alignment
from penstock.protocol.values.messages import Message

Answer = Callable[[str | SavepointFailed], None]
"""A callback that is called once: with the savepoint's directory, or with the reason why there is none."""


CheckpointAnswer = Callable[[CheckpointFailed | None], None]
"""A callback that is called once: with None when a checkpoint is triggered or queued, or with why there is none."""


@dataclass(frozen=True)
class RescaleOrder:
    """Holds a user's request. `answer` is called once: with None when the job runs so, or with why it does not.
    `is_own`: the adaptive scheduler asks for slots, up to those that the user has asked for. `graph`: what the job
    runs in the second step of a restore; None: `parallelism` says it.
    """

    parallelism: Parallelism
    answer: Callable[[RescaleFailed | None], None]
    reason: str = "requested"
    is_own: bool = False
    graph: JobGraph | None = None


@dataclass(frozen=True)
class SavepointOrder:
    """Holds a user's request. `directory`: where to make the savepoint's directory; None: the configured one."""

    answer: Answer
    directory: str | None = None
    alignment: Alignment = Alignment.CONFIGURED
    stops: bool = False
    drains: bool = False


@dataclass(frozen=True)
class JobOutcome:
    """Holds a job's outcome. `state`: FINISHED, CANCELED or FAILED. `error` begins with the user's traceback if there
    is one. `resume_from`: the job's directory, if a checkpoint is retained in it. `runtime_ms` is from start to end.
    `is_suspended`: only this driver has ended; another one continues the job, or will. `releases`: the folders
    of rows that may be deleted.
    """

    state: str
    error: str | None
    resume_from: str | None
    runtime_ms: float
    is_suspended: bool = False
    releases: Release = Release.NOTHING


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
