"""Declares the boundary of the JobMaster: the events that come in, and the ports to the world.

Events are what slots report and users ask, each with the way to answer it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.common.clock import Clock
from penstock.common.job_execution import CheckpointFailed, RescaleFailed, SavepointFailed
from penstock.common.limits import USUAL, Limits
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import Parallelism
from penstock.protocol.driver.row_folders import Release
from penstock.protocol.driver.savepoint import Alignment
from penstock.protocol.values.messages import Message
from penstock.storage.opening import OpenStore

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


# ---- ports ---------------------------------------------------------------------------------------------------------


class Console(Protocol):
    """Declares the destination of a job's lines."""

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        """Print one line that a subtask (counted from 0) printed, without its end."""

    def warning(self, text: str) -> None:
        """Print a failure that the job survives, or something that the user should look at. It may have several
        lines.
        """


class BlockingWork(Protocol):
    """Runs work that may block (storage, commits) elsewhere, one call after the other in the order given.

    `done` is called in the owner's loop with the result, or with the exception that was raised.
    """

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None: ...


class SlotLinks(Protocol):
    """Sends to slots. A link is a registered connection of one slot process, named by `process`."""

    def send(self, process: str, message: Message) -> None:
        """Send without blocking. Does nothing if the link is gone (its loss is, or will be, an event)."""

    def close(self, process: str) -> None: ...


class SlotSubmitter(Protocol):
    """Keeps one Spark job per slot running until it is cancelled."""

    def submit(self, slot: int) -> None: ...

    def resubmit(self, slot: int) -> None:
        """Cancel the Spark job of a slot that does not answer, if it still runs, and submit it again."""

    def release(self, slot: int) -> None:
        """Cancel the Spark job of a slot for good: its process has been told to leave."""

    @property
    def capacity(self) -> int | None:
        """Return the maximum number of processes; None: that may change."""

    def cancel_all(self) -> None: ...


@dataclass(frozen=True)
class MasterPorts:
    """Bundles the ports. `random` returns the next number in [0, 1). `open_store` takes a directory and whether to
    create it. `host` and `pid` name this driver in its fence. `commit_work` is where sinks commit, so that one that
    hangs holds up neither the log nor a recovery; `savepoint_work` where savepoints are written, and `source_work`
    where sources look for splits, for the same reason. None: with the other work.
    """

    clock: Clock
    links: SlotLinks
    slots: SlotSubmitter
    work: BlockingWork
    open_store: OpenStore
    console: Console
    random: Callable[[], float]
    host: str = ""
    pid: int = 0
    commit_work: BlockingWork | None = None
    savepoint_work: BlockingWork | None = None
    source_work: BlockingWork | None = None
    limits: Limits = USUAL


class RefreshingWork:
    """Renews the report after each answer of blocking work, because that is an event, too."""

    def __init__(self, work: BlockingWork, refresh: Callable[[], None]) -> None:
        self._work = work
        self._refresh = refresh

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def then(result: Any) -> None:
            done(result)
            self._refresh()

        self._work.submit(name, work, then)


class ProcessLinks:
    """Knows the links of all processes that have registered, until they are lost or closed."""

    def __init__(self, links: SlotLinks) -> None:
        self._links = links
        self._registered: dict[str, None] = {}

    def registered(self, process: str) -> None:
        self._registered[process] = None

    def lost(self, process: str) -> None:
        self._registered.pop(process, None)

    def close(self, process: str) -> None:
        self._registered.pop(process, None)
        self._links.close(process)

    def close_all(self) -> None:
        for process in list(self._registered):
            self.close(process)
