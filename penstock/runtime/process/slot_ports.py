"""Declares the ports from the runtime to the world.

The real ones are in `penstock.network` and `penstock.spark`; the simulation has its own, which misbehave on schedule.
"""

from __future__ import annotations

from typing import Any, Callable, Protocol

from penstock.protocol.values.messages import Message
from penstock.runtime.process.mailbox import Mailbox


class MasterLink(Protocol):
    """Sends to a slot's JobMaster."""

    def send(self, message: Message) -> None: ...


class DataLinks(Protocol):
    """Sends to a slot's peers. `frame` is one of `penstock.protocol.values.frames`."""

    def connect(self, peers: list[Any], generation: Any) -> None:
        """Start connecting; an event reports success to the slot when all peers have answered the handshake."""

    def send(self, peer_slot: int, frame: Any) -> None:
        """Send a frame. Frames of one channel arrive in order; urgent ones pass data of their channel that has not left
        yet, but never an aligned barrier of their channel.
        """

    def disconnect(self) -> None: ...


class Runner(Protocol):
    """Runs in steps: a subtask, or a slot's snapshot writer."""

    name: str
    subtask: int | None
    mailbox: Mailbox

    def step(self) -> float | None:
        """Run one step; return after how many ms to call again: 0 at once, None when `wait` returns."""

    def wait(self, timeout_ms: float | None) -> None:
        """Wait for mail, or for that long at most."""

    @property
    def done(self) -> bool: ...


class StepScheduler(Protocol):
    """Schedules runners: a thread each in a slot, one scheduler for all in the simulation."""

    def start(self, runner: Runner) -> None: ...

    def run_apart(self, work: Callable[[], None]) -> None:
        """Run `work` once, next to all runners, because it may wait for storage. It does not raise."""

    def when_done(self, runners: list[Runner], timeout_ms: float, done: Callable[[], None]) -> None:
        """Call `done` once all have ended. If one has not within the time, end its process hard: user code that does
        not return must not write next to the next generation.
        """
