"""Gives user code of the simulated job access to the world around it.

Functions, sinks and committers are unpickled again for every generation, so they cannot hold the world; they ask here
for it. One world runs at a time in a process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from simulation.world.call_log import CallLog, CheckpointName
from simulation.world.transaction_broker import TransactionBroker

Row = tuple[int, int, int, int, int]


@dataclass
class Pending:
    sink: str
    subtask: int
    rows: list[Row]
    transaction: tuple[str, int] | None = None
    """The transactional id and the epoch, if it is one."""


class WorldHooks(Protocol):
    def pass_time(self, elapsed_ms: float) -> None:
        """Keep the caller busy for that long."""

    def now_ms(self) -> float:
        """Return the time of the world, which no process sees."""

    def violate(self, what: str) -> None: ...

    def fail_now(self) -> bool:
        """Return whether a user function should raise here."""

    def keep(self, handle: Any) -> None:
        """Keep a handle of state of a caller that was closed: it must be of no use from now on."""

    def on_timer(self, operator: str, timestamp_ms: int) -> None:
        """Report a timer that fires to the scenario."""

    def objects(self) -> dict[str, bytes]:
        """Return all objects of all stores, for what needs no call that could fail."""

    def broker(self) -> TransactionBroker:
        """Return the broker that keeps the transactions of all sinks."""

    def calls(self) -> CallLog:
        """Return the log of what slow services were asked."""

    def incarnation(self) -> str:
        """Return the incarnation of the driver whose subtask calls this."""

    def restored_from(self) -> CheckpointName | None:
        """Return the checkpoint that the calling subtask was restored from."""

    def prepare(self, name: str, pending: Pending) -> None: ...

    def confirm(self, name: str) -> None:
        """Note that a writer takes prepared output for committed, and for never committed again."""

    def commit(self, name: str) -> None:
        """Make prepared output visible; raise if a fault is injected here."""


_current: WorldHooks | None = None


def enter(hooks: WorldHooks | None) -> None:
    global _current
    _current = hooks


def current() -> WorldHooks:
    assert _current is not None, "user code of a simulated job runs in a simulation only"
    return _current
