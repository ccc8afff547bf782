"""Runs a subtask through one generation: open, steps, end. Reports a failure to the JobMaster once."""

from __future__ import annotations

from typing import Callable

from penstock.common.clock import Clock
from penstock.common.program.failures import OperatorFailure, describe
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Message, SubtaskFailed, SubtaskStatus
from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from penstock.runtime.process import context
from penstock.runtime.process.reason_of import reason_of, text_of
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.subtask import Subtask


class SubtaskRunner:
    """Opens a subtask and steps it. Implements `penstock.runtime.process.slot_ports.Runner`.

    Args:
        open: Restores the subtask and opens its user code; called in the subtask's thread.
        opened: Called after it.
        send: Sends the JobMaster a message; drops those of a revoked generation.
    """

    def __init__(
        self,
        deployed: DeployedSubtask,
        generation: Generation,
        slot: int,
        clock: Clock,
        open: Callable[[], Subtask],
        opened: Callable[[], None],
        send: Callable[[Message], None],
    ) -> None:
        self.deployed = deployed
        self.opened: Subtask | None = None
        """None until its user code has been opened."""
        self.mailbox = deployed.mailbox
        self.name = deployed.name
        self.subtask: int | None = deployed.id.subtask
        self.generation = generation
        self._slot = slot
        self._clock = clock
        self._open = open
        self._tell_opened = opened
        self._send = send
        self._may_restore = self._revoked = self._failed = False
        self.done = False
        self._busy_ms = self._backpressured_ms = self._step_ms_max = 0.0
        self._waiting_since: tuple[float, bool] | None = None
        self._status_ms = clock.monotonic_ms()

    @property
    def is_restored(self) -> bool:
        return self.opened is not None

    def may_restore(self) -> None:
        self._may_restore = True
        self.mailbox.wake()

    def revoke(self) -> None:
        """End the generation: no further step of user code runs, and `done` is called soon."""
        self._revoked = True
        self.mailbox.wake()

    def wait(self, timeout_ms: float | None) -> None:
        self.mailbox.wait(timeout_ms)

    def step(self) -> float | None:
        context.set_current(self.subtask)
        if self._revoked:
            self._end()
            return 0
        if self._failed or not self._may_restore:
            return None
        started_ms = self._clock.monotonic_ms()
        if self._waiting_since is not None:
            since_ms, backpressured = self._waiting_since
            if backpressured:
                self._backpressured_ms += started_ms - since_ms
            self._waiting_since = None
        try:
            if self.opened is None:
                self.opened = self._open()
                self._tell_opened()
                return 0
            result = self.opened.step(started_ms)
        except BaseException as error:
            self._fail(error)
            return None
        worked, wait_ms, backpressured = result
        ended_ms = self._clock.monotonic_ms()
        if worked:
            took_ms = ended_ms - started_ms
            self._busy_ms += took_ms
            if took_ms > self._step_ms_max:
                self._step_ms_max = took_ms
        else:
            self._waiting_since = (ended_ms, backpressured)
        return wait_ms

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        if self._revoked:
            return
        subtask = self.deployed
        if isinstance(error, OperatorFailure):
            operator, traceback = error.operator, error.user_traceback()
        else:
            operator, traceback = subtask.vertex.name, describe(error)
        text, reason = text_of(error), reason_of(error)
        self._send(SubtaskFailed(self.generation, self._slot, subtask.id, operator, text, traceback, reason))

    def _end(self) -> None:
        if self.done:
            return
        try:
            if self.opened is not None:
                self.opened.close()
        except Exception:  # the generation is over: what user code raises in close() changes nothing any more
            pass
        self.done = True

    def status(self) -> SubtaskStatus:
        """Return the counters; shares are of the time since the last call. Called from any thread."""
        if self.opened is None:
            return SubtaskStatus(self.deployed.id.vertex, self.deployed.id.subtask, 0, 0, 0, 0, 0.0, 0.0, 0)
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = max(now_ms - self._status_ms, 1.0)
        waiting = self._waiting_since
        backpressured_ms = self._backpressured_ms
        if waiting is not None and waiting[1]:
            backpressured_ms += now_ms - max(waiting[0], self._status_ms)
        status = self.opened.status(
            min(1.0, self._busy_ms / elapsed_ms), min(1.0, backpressured_ms / elapsed_ms), self._step_ms_max
        )
        self._status_ms, self._busy_ms, self._backpressured_ms, self._step_ms_max = now_ms, 0.0, 0.0, 0.0
        if waiting is not None:
            self._waiting_since = (now_ms, waiting[1])
        return status


class WriterRunner:
    """Drives a slot's snapshot writer. Implements `penstock.runtime.process.slot_ports.Runner`."""

    subtask: int | None = None

    def __init__(self, writer: SnapshotWriter, failed: Callable[[BaseException], None]) -> None:
        self.name = "snapshot writer"
        self.generation = writer.generation
        self._writer = writer
        self.mailbox = writer.mailbox
        self._failed = failed
        self.done = False
        self._revoked = False

    def revoke(self) -> None:
        self._revoked = True
        self._writer.mailbox.wake()

    def wait(self, timeout_ms: float | None) -> None:
        self._writer.mailbox.wait(timeout_ms)

    def step(self) -> float | None:
        if self._revoked:
            self._writer.close()
            self.done = not self._writer.is_storing
            return 0 if self.done else None
        try:
            return 0 if self._writer.step() else self._writer.wait_ms
        except Exception as error:
            self._revoked = True
            self._failed(error)
            return 0
