"""Executes the effects of `protocol.driver.commit_order`: calls the sinks' committers, off the JobMaster's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from penstock.common.program.failures import describe
from penstock.connectors.base import Committer, PermanentError, SinkError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.graph.logical import OperatorKind
from penstock.jobmaster.current_job import Driver
from penstock.jobmaster.ports import BlockingWork
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.commit_order import Added, Committed, FailForDelay, Refused, WarnOfDelay
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.values.metadata import Committable


class NoSuchSink(SinkError, PermanentError):
    """Signals that output waits to be committed whose sink is no longer in the program."""


def _nothing() -> None:
    pass


class Commits:
    """Commits the batches that the machine orders. `work`: where committers may block."""

    def __init__(self, graph: JobGraph, driver: Driver, work: BlockingWork, warn: Callable[[str], None]) -> None:
        self._sinks: dict[str, Operator] = {
            operator.uid: operator
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.kind is OperatorKind.SINK
        }
        self._committers: dict[str, Committer] = {}
        self._driver = driver
        self._work = work
        self._warn = warn
        self._numbers = count()
        self._confirmed: dict[int, Callable[[], None]] = {}
        self.committing: str | None = None
        """The name of the sink that commits now."""

    @property
    def unconfirmed(self) -> list[Committable]:
        return self._driver.machine.commits.unconfirmed

    def add(self, committables: Sequence[Committable], confirmed: Callable[[], None] = _nothing) -> None:
        """Append committables; call it in the log's order. `confirmed` is called when these and all before them are
        committed.
        """
        batch = next(self._numbers)
        self._confirmed[batch] = confirmed
        self._driver.handle(Added(batch, tuple(committables)))

    # ---- effects ------------------------------------------------------------------------------------------------

    def confirm(self, batch: int) -> None:
        self._confirmed.pop(batch)()

    def commit(self, committables: Sequence[Committable]) -> None:
        self.committing = self._name(committables[0].operator)
        self._work.submit("commit", lambda: self._commit(committables), self._done)

    def warn_of_delay(self, delayed: WarnOfDelay) -> None:
        self._warn(f"{self._took(delayed.waited_ms)}; checkpoints go on meanwhile")

    def fail_for_delay(self, delayed: FailForDelay) -> None:
        summary = (
            f"{self._took(delayed.waited_ms)} (execution.checkpointing.timeout). Find out what it waits for, then "
            "resume the job from its directory: the commit is repeated"
        )
        self._driver.handle(events.CommitOverdue(FailureCause(summary, restartable=False)))

    def _took(self, waited_ms: float) -> str:
        return f"sink '{self.committing}' has not finished committing its output after {waited_ms / 1000:.0f} s"

    def _done(self, outcome: Any) -> None:
        self.committing = None
        if isinstance(outcome, Exception):
            outcome = FailureCause(f"a commit failed: {outcome}", describe(outcome))
        self._driver.handle(Committed() if outcome is None else Refused(outcome))

    def _commit(self, committables: Sequence[Committable]) -> FailureCause | None:
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
                return FailureCause(summary, describe(error), restartable=not isinstance(error, PermanentError))
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
