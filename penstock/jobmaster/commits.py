"""Executes the effects of `protocol.driver.commit_order`: calls the sinks' committers, off the JobMaster's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from penstock.common.clock import Clock
from penstock.common.program.failures import describe
from penstock.connectors.base import Committer, PermanentError, SinkError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.graph.logical import OperatorKind
from penstock.jobmaster.ports import BlockingWork
from penstock.protocol.driver.commit_order import (
    Added,
    Commit,
    CommitOrder,
    CommitState,
    Committed,
    Confirm,
    Effect,
    FailForDelay,
    NotifyIdle,
    Refused,
    ReportRefusal,
    Retried,
    TimePassed,
    WarnOfDelay,
)
from penstock.protocol.values.metadata import Committable


@dataclass(frozen=True)
class CommitFailed:
    """Reports a failed commit. `summary` names the sink; `traceback` is where its committer raised. `restartable`
    False: every later attempt would fail, too.
    """

    summary: str
    traceback: str
    restartable: bool = True


class NoSuchSink(SinkError, PermanentError):
    """Signals that output waits to be committed whose sink is no longer in the program."""


def _nothing() -> None:
    pass


class CommitQueue:
    """Commits in the log's order. `failed` is called once for each failed attempt; `retry` makes the next one. A commit
    may take `timeout_ms`.
    """

    def __init__(
        self,
        graph: JobGraph,
        work: BlockingWork,
        clock: Clock,
        timeout_ms: float,
        failed: Callable[[CommitFailed], None],
        warn: Callable[[str], None],
    ) -> None:
        self._sinks: dict[str, Operator] = {
            operator.uid: operator
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.kind is OperatorKind.SINK
        }
        self._committers: dict[str, Committer] = {}
        self._work = work
        self._clock = clock
        self._failed = failed
        self._warn = warn
        self._order = CommitOrder(timeout_ms)
        self._numbers = count()
        self._confirmed: dict[int, Callable[[], None]] = {}
        self._refusal: CommitFailed | None = None
        self._when_idle: list[Callable[[], None]] = []
        self.committing: str | None = None
        """The name of the sink that commits now."""

    @property
    def unconfirmed(self) -> list[Committable]:
        return self._order.unconfirmed

    def add(self, committables: Sequence[Committable], confirmed: Callable[[], None] = _nothing) -> None:
        """Append committables; call it in the log's order. `confirmed` is called when these and all before them are
        committed.
        """
        batch = next(self._numbers)
        self._confirmed[batch] = confirmed
        self._handle(Added(batch, tuple(committables)))

    def retry(self) -> None:
        self._handle(Retried())

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` when all are confirmed, or one has failed."""
        if self._order.state is CommitState.COMMITTING:
            self._when_idle.append(action)
        else:
            action()

    def next_deadline_ms(self) -> float | None:
        return self._order.next_deadline_ms()

    def on_time(self, now_ms: float) -> None:
        self._execute(self._order.handle(TimePassed(), now_ms))

    # ---- effects ------------------------------------------------------------------------------------------------

    def _handle(self, event: Added | Retried | Committed | Refused) -> None:
        self._execute(self._order.handle(event, self._clock.monotonic_ms()))

    def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Confirm(batch):
                    self._confirmed.pop(batch)()
                case Commit(committables):
                    self.committing = self._name(committables[0].operator)
                    self._submit(committables)
                case ReportRefusal():
                    failed, self._refusal = self._refusal, None
                    assert failed is not None
                    self._failed(failed)
                case WarnOfDelay(waited_ms):
                    self._warn(f"{self._took(waited_ms)}; checkpoints go on meanwhile")
                case FailForDelay(waited_ms):
                    summary = (
                        f"{self._took(waited_ms)} (execution.checkpointing.timeout). Find out what it waits for, then "
                        "resume the job from its directory: the commit is repeated"
                    )
                    self._failed(CommitFailed(summary, "", restartable=False))
                case NotifyIdle() if self._order.state is not CommitState.COMMITTING:
                    actions, self._when_idle = self._when_idle, []
                    for action in actions:
                        action()

    def _took(self, waited_ms: float) -> str:
        return f"sink '{self.committing}' has not finished committing its output after {waited_ms / 1000:.0f} s"

    def _submit(self, committables: Sequence[Committable]) -> None:
        self._work.submit("commit", lambda: self._commit(committables), self._done)

    def _done(self, outcome: Any) -> None:
        self.committing = None
        if isinstance(outcome, Exception):
            outcome = CommitFailed(f"a commit failed: {outcome}", describe(outcome))
        self._refusal = outcome
        self._handle(Committed() if outcome is None else Refused())

    def _commit(self, committables: Sequence[Committable]) -> CommitFailed | None:
        """Call each sink once for each checkpoint, with its committables in order. Runs outside the loop's thread."""
        by_sink: dict[tuple[int, str], list[bytes]] = {}
        for committable in committables:
            by_sink.setdefault((committable.checkpoint_id, committable.operator), []).append(committable.data)
        for (checkpoint_id, uid), data in by_sink.items():
            self.committing = name = self._name(uid)
            try:
                committer = self._committer(uid)
                if committer is None:
                    raise NoSuchSink(
                        "the program has no sink of this id that commits any more, but a completed checkpoint holds "
                        "output of it that waits to be committed. Put the sink back, under its old uid, or start the "
                        "job without the checkpoint"
                    )
                committer.commit(checkpoint_id, data)
            except Exception as error:
                summary = f"sink '{name}' could not commit its output: {type(error).__name__}: {error}"
                return CommitFailed(summary, describe(error), not isinstance(error, PermanentError))
        return None

    def _name(self, uid: str) -> str:
        sink = self._sinks.get(uid)
        return uid if sink is None else sink.name

    def _committer(self, uid: str) -> Committer | None:
        if uid not in self._committers and uid in self._sinks:
            committer = self._sinks[uid].function.create_committer()
            if committer is not None:
                self._committers[uid] = committer
        return self._committers.get(uid)
