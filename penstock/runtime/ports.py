"""What the runtime needs of the world. Real ones are in `penstock.network` and `penstock.spark`; the simulation has
its own, which misbehave on schedule."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from penstock.protocol.messages import Message
from penstock.runtime.mailbox import Mailbox


class Clock(Protocol):
    def monotonic_ms(self) -> float: ...

    def undisturbed_ms(self) -> float:
        """Return monotonic time without what the calling thread has waited for a processor, so that a difference
        says what work costs, on a busy machine too. The difference of two calls by one thread; never a deadline."""

    def wall_ms(self) -> int:
        """For names and reports only, never for a decision."""


class BlockingWork(Protocol):
    """Runs work that may block (storage, commits) elsewhere, one piece after the other in the order given.

    `done` is called in the owner's loop with the result, or with the exception that was raised."""

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None: ...


class SlotLinks(Protocol):
    """The JobMaster's connections. A link is a registered connection of one slot process, named by `process`."""

    def send(self, process: str, message: Message) -> None:
        """Never blocks; to a link that is gone it does nothing (its loss is, or will be, an event)."""

    def close(self, process: str) -> None: ...


class SlotSubmitter(Protocol):
    """Keeps one Spark job per slot running until it is told not to."""

    def submit(self, slot: int) -> None: ...

    def resubmit(self, slot: int) -> None:
        """Cancels the slot's Spark job, if it still runs, and submits it again (a slot that does not answer)."""

    def cancel_all(self) -> None: ...


class MasterLink(Protocol):
    """A slot's connection to its JobMaster."""

    def send(self, message: Message) -> None: ...


class DataLinks(Protocol):
    """A slot's connections to its peers. `frame` is one of `penstock.protocol.frames`."""

    def connect(self, peers: list[Any], generation: Any) -> None:
        """Starts connecting; the slot hears of success as an event when all peers have answered the handshake."""

    def send(self, peer_slot: int, frame: Any) -> None:
        """Frames of one channel arrive in order; urgent ones pass data of their channel that has not left yet, but
        never an aligned barrier of their channel."""

    def disconnect(self) -> None: ...


class Runner(Protocol):
    """Something with steps: a subtask or a slot's snapshot writer."""

    name: str
    subtask: int | None
    mailbox: Mailbox

    def step(self) -> float | None:
        """Does a piece of work; returns after how many ms to call again: 0 at once, None when `wait` says so."""

    def wait(self, timeout_ms: float | None) -> None:
        """Until there is mail, or for that long at most."""

    @property
    def done(self) -> bool: ...


class Driver(Protocol):
    """Drives runners: a thread each in a slot, one scheduler for all in the simulation."""

    def start(self, runner: Runner) -> None: ...

    def when_done(self, runners: list[Runner], timeout_ms: float, done: Callable[[], None]) -> None:
        """Calls `done` once all have ended. If one has not within the time, its process ends hard: user code that
        does not return must not go on writing beside the next generation."""
