"""Commits what two-phase sinks prepared: after the log entry, in the log's order, never on the JobMaster's loop.

A commit that failed stays at the head of the queue, rides along in the metadata of later checkpoints, and is tried
again when the job restarts; nothing overtakes it. One that does not return is named after a while, and fails the job
in the end: nobody can stop it, so it is not repeated by this driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.common.clock import Clock
from penstock.common.failures import describe
from penstock.datastream.connectors.base import Committer, PermanentError, SinkError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.graph.logical import OperatorKind
from penstock.jobmaster.ports import BlockingWork
from penstock.protocol.values.metadata import Committable

WARN_AFTER_MS = 30_000.0


@dataclass(frozen=True)
class CommitFailed:
    """`summary` names the sink; `traceback` is where its committer raised. `restartable` False: every later attempt
    would fail, too."""

    summary: str
    traceback: str
    restartable: bool = True


class NoSuchSink(SinkError, PermanentError):
    """Raised when output waits to be committed whose sink the program has no more."""


@dataclass
class _Batch:
    committables: list[Committable]
    confirmed: Callable[[], None]


def _nothing() -> None:
    pass


class CommitQueue:
    """`failed` is called once for each failed attempt; `retry` makes the next one. A commit may take `timeout_ms`."""

    def __init__(
        self, graph: JobGraph, work: BlockingWork, clock: Clock, timeout_ms: float,
        failed: Callable[[CommitFailed], None], warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._sinks: dict[str, Operator] = {
            operator.uid: operator
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.kind is OperatorKind.SINK
        }
        self._committers: dict[str, Committer] = {}
        self._work = work
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._failed = failed
        self._warn = warn
        self._started_ms = 0.0
        self._warn_at_ms: float | None = None
        self._fail_at_ms: float | None = None
        self.committing: str | None = None
        """The name of the sink that commits now."""
        self._batches: deque[_Batch] = deque()
        self._is_committing = False
        self._is_stuck = False
        self._when_settled: list[Callable[[], None]] = []

    @property
    def unconfirmed(self) -> list[Committable]:
        return [c for batch in self._batches for c in batch.committables]

    @property
    def has_committing_sinks(self) -> bool:
        return any(self._committer(uid) is not None for uid in self._sinks)

    def add(self, committables: Sequence[Committable], confirmed: Callable[[], None] = _nothing) -> None:
        """To be called in the log's order. `confirmed` is called when these and all before them are committed."""
        self._batches.append(_Batch(list(committables), confirmed))
        self._go_on()

    def retry(self) -> None:
        self._is_stuck = False
        self._go_on()

    def when_settled(self, action: Callable[[], None]) -> None:
        """When all are confirmed, or one has failed."""
        if not self._is_committing:
            action()
        else:
            self._when_settled.append(action)

    def _go_on(self) -> None:
        while self._batches and not self._batches[0].committables and not self._is_committing:
            self._batches.popleft().confirmed()
        if self._batches and not self._is_committing and not self._is_stuck:
            self._is_committing = True
            self._started_ms = self._clock.monotonic_ms()
            self._warn_at_ms, self._fail_at_ms = self._started_ms + WARN_AFTER_MS, self._started_ms + self._timeout_ms
            committables = list(self._batches[0].committables)
            self.committing = self._name(committables[0].operator)
            self._work.submit("commit", lambda: self._commit(committables), self._done)

    def _commit(self, committables: list[Committable]) -> CommitFailed | None:
        """Not in the loop's thread. One call per sink, each with all its committables in order."""
        by_sink: dict[str, list[bytes]] = {}
        for committable in committables:
            by_sink.setdefault(committable.operator, []).append(committable.data)
        for uid, data in by_sink.items():
            self.committing = name = self._name(uid)
            try:
                committer = self._committer(uid)
                if committer is None:
                    raise NoSuchSink(
                        "the program has no sink of this id that commits any more, but a completed checkpoint holds "
                        "output of it that waits to be committed. Put the sink back, under its old uid, or start the "
                        "job without the checkpoint"
                    )
                committer.commit(data)
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

    def next_deadline_ms(self) -> float | None:
        return min((t for t in (self._warn_at_ms, self._fail_at_ms) if t is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        took = f"sink '{self.committing}' has not finished committing its output after"
        if self._fail_at_ms is not None and self._fail_at_ms <= now_ms:
            self._warn_at_ms = self._fail_at_ms = None
            summary = (
                f"{took} {(now_ms - self._started_ms) / 1000:.0f} s (execution.checkpointing.timeout). Find out what "
                "it waits for, then resume the job from its directory: the commit is repeated"
            )
            self._failed(CommitFailed(summary, "", restartable=False))
        elif self._warn_at_ms is not None and self._warn_at_ms <= now_ms:
            self._warn_at_ms = None
            self._warn(f"{took} {(now_ms - self._started_ms) / 1000:.0f} s; checkpoints go on meanwhile")

    def _done(self, outcome: Any) -> None:
        self._is_committing = False
        self._warn_at_ms = self._fail_at_ms = self.committing = None
        if isinstance(outcome, Exception):
            outcome = CommitFailed(f"a commit failed: {outcome}", describe(outcome))
        if outcome is None:
            batch = self._batches.popleft()
            batch.confirmed()
            self._go_on()
        else:
            self._is_stuck = True
            self._failed(outcome)
        if not self._is_committing:
            actions, self._when_settled = self._when_settled, []
            for action in actions:
                action()
