"""Rescales the running job: computes the graph, asks for slots and the checkpoint, and restarts the job from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Protocol

from penstock.common.clock import Clock
from penstock.common.job_execution import RescaleFailed
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import PartitionerKind
from penstock.graph.rescaling import RescaleRefused, rescaled
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.console import Console
from penstock.jobmaster.fit import fitted
from penstock.jobmaster.orders import RescaleOrder
from penstock.jobmaster.ports import SlotSubmitter
from penstock.jobmaster.restore import RestorePoint
from penstock.jobmaster.settings import JobSettings
from penstock.monitoring.report import RescaleReport
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.checkpoint.coordinator_effects import TriggerCheckpoint
from penstock.protocol.job import lifecycle_effects, rescaling
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.job.lifecycle_table import Phase
from penstock.protocol.job.rescaling import Effect, Rescale, Rescaling, Situation
from penstock.protocol.values.reasons import FailureReason

_REMEMBERED_MAX = 32
_NOT_RESTORED = "the job cannot be restored at the parallelism that it is to have"
RESTORED = "restored at another parallelism"
"""The reason of a second step of a restore, in the history of rescales."""
_FAILED_OVER = (FailureReason.JOB_FAILOVER, FailureReason.SUBSUMED)


class Master(Protocol):
    """Declares what a rescale needs of the JobMaster."""

    graph: JobGraph
    settings: JobSettings
    clock: Clock
    lifecycle: Lifecycle
    coordinator: CheckpointCoordinator
    checkpoints: Checkpoints
    restore_point: RestorePoint | None
    console: Console

    @property
    def is_drained(self) -> bool: ...

    def execute(self, decided: Sequence[lifecycle_effects.Effect]) -> None: ...

    def fail(self, cause: FailureCause) -> None: ...

    def abandon(self, error: str) -> None: ...

    def adopt(self, graph: JobGraph) -> None:
        """Take the same job's graph at another parallelism, before anything is deployed."""


class Rescales:
    def __init__(self, master: Master, slots: SlotSubmitter) -> None:
        self._master = master
        self._slots = slots
        self._declared = self._before = master.graph
        self.wanted = master.graph
        """The graph as the user wants it: as declared, or as the newest rescale that he has ordered."""
        self.holds_sources = False
        """Whether the job is in the first of two steps of a restore: its sources emit nothing."""
        self._machine = Rescaling()
        self._orders: dict[int, RescaleOrder] = {}
        self._has_ended = False
        self._numbers = count(1)
        self._checkpoint_id: int | None = None
        self._reports: deque[RescaleReport] = deque(maxlen=_REMEMBERED_MAX)

    @property
    def reports(self) -> tuple[RescaleReport, ...]:
        return tuple(self._reports)

    def next_deadline_ms(self) -> float | None:
        return self._machine.next_deadline_ms()

    @property
    def is_idle(self) -> bool:
        return not self._orders

    # ---- orders -------------------------------------------------------------------------------------------------

    def order(self, order: RescaleOrder) -> None:
        """Begin, or queue, or refuse at once what can never be."""
        master = self._master
        if self._has_ended:
            order.answer(RescaleFailed("the job has ended"))
            return
        if not master.settings.checkpointing:
            why = "a job is rescaled from a checkpoint: set execution.checkpointing.interval"
            order.answer(RescaleFailed(why))
            return
        try:
            graph = self._graph(order)
        except RescaleRefused as error:
            order.answer(RescaleFailed(str(error)))
            return
        if graph == master.graph and not self._orders:
            if not order.is_own:
                self._want(graph)
                # An adaptive job that runs like this for want of slots has asked for more, which its user gives up.
                master.execute(master.lifecycle.release_unneeded(master.clock.monotonic_ms()))
            order.answer(None)
            return
        number = next(self._numbers)
        self._orders[number] = order
        rescale = Rescale(number, graph.slots)
        self._execute(self._machine.on_ordered(rescale, self._situation(), master.clock.monotonic_ms()))

    def continue_as(self, graph: JobGraph, is_own: bool = False) -> None:
        """Hold the sources from the next generation on, and continue as `graph` when everything in flight is read. The
        caller lets the job run as its checkpoint was taken until then. `is_own`: not its user asks for that graph."""
        master, life = self._master, self._master.lifecycle
        self.holds_sources = True
        if not is_own:
            life.roster.kept_slots = graph.slots  # of processes that have been submitted for the second step
        number = next(self._numbers)
        self._orders[number] = RescaleOrder(graph.slots, self._restored, RESTORED, is_own, graph)
        rescale = Rescale(number, graph.slots, is_restore=True)
        self._execute(self._machine.on_ordered(rescale, self._situation(), master.clock.monotonic_ms()))

    def _restored(self, failed: RescaleFailed | None) -> None:
        if failed is not None and not self._has_ended:
            self._master.console.warning(str(failed))

    def _graph(self, order: RescaleOrder) -> JobGraph:
        if order.graph is not None:
            return order.graph
        if not order.is_own:
            return rescaled(self._master.graph, self._declared, order.parallelism)
        assert isinstance(order.parallelism, int)
        return rescaled(self._master.graph, self.wanted, min(order.parallelism, self.wanted.slots))

    def _want(self, graph: JobGraph) -> None:
        self.wanted = graph
        if self._master.settings.adaptive is not None:
            self._master.lifecycle.roster.kept_slots = graph.slots

    @property
    def _is_aligned(self) -> bool:
        """Return whether the checkpoint must hold no rows in flight. The receivers of a broadcast have read the same
        rows only where there are none."""
        return any(edge.partitioner.kind is PartitionerKind.BROADCAST for edge in self._master.graph.edges)

    def _situation(self) -> Situation:
        master, life, capacity = self._master, self._master.lifecycle, self._slots.capacity
        running = life.generation if life.phase is Phase.RUNNING and not life.is_finishing else None
        processes = len(life.roster.processes)
        return Situation(
            None if running is None else running.counter,
            self._is_aligned and not master.is_drained,
            life.roster.slots,
            processes,
            life.settings.spares,
            capacity is None or processes < capacity,
            master.settings.adaptive is None,
        )

    # ---- what happens -------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Continue, if what was waited for is there. Costs nothing while nothing is ordered."""
        if self._orders:
            self._execute(self._machine.look(self._situation(), self._master.clock.monotonic_ms()))

    def on_published(self, checkpoint_id: int) -> None:
        """Restart, if this is the checkpoint that was taken for it."""
        if checkpoint_id == self._checkpoint_id:
            self._checkpoint_id = None
            self._execute(self._machine.on_published(self._master.clock.monotonic_ms()))

    def on_not_taken(self, reason: FailureReason, detail: str) -> None:
        self._checkpoint_id = None
        why = f"its checkpoint failed ({reason}{f': {detail}' if detail else ''})"
        why += "" if self.holds_sources else "; the job continues as it was"
        now_ms = self._master.clock.monotonic_ms()
        self._execute(self._machine.on_not_taken(why, reason in _FAILED_OVER, self._situation(), now_ms))

    def on_lowered(self, why: str) -> None:
        """Give up the rescale from whose checkpoint the job restarts, or the second step of its restore: it restarts in
        fewer slots."""
        self.holds_sources = False
        self._execute(self._machine.on_refused(why, self._situation(), self._master.clock.monotonic_ms()))

    def end(self, why: str) -> None:
        """Answer everybody who still waits, and all who ask later: the job has ended."""
        self._has_ended = True
        self._execute(self._machine.end(why))

    def _execute(self, effects: Sequence[Effect]) -> None:
        master = self._master
        for effect in effects:
            match effect:
                case rescaling.ProvideSlots(slots):
                    master.execute(master.lifecycle.provide(slots))
                case rescaling.TakeCheckpoint():
                    self._take_checkpoint()
                case rescaling.RestartWith(rescale):
                    self._restart(rescale)
                case rescaling.RestoreAgain(why):
                    master.fail(FailureCause(f"{_NOT_RESTORED}: {why}"))
                case rescaling.Rescaled(rescale):
                    self._report(effect)
                    self._orders.pop(rescale.number).answer(None)
                case rescaling.NotRescaled(rescale, why):
                    master.execute(master.lifecycle.release_unneeded(master.clock.monotonic_ms()))
                    self._orders.pop(rescale.number).answer(RescaleFailed(f"the job was not rescaled: {why}"))

    def _take_checkpoint(self) -> None:
        master, now_ms = self._master, self._master.clock.monotonic_ms()
        effects = master.coordinator.request_rescale(self._is_aligned, now_ms)
        for effect in effects:
            if isinstance(effect, TriggerCheckpoint):
                self._checkpoint_id = effect.barrier.checkpoint_id
                self._machine.on_triggered(now_ms)
        master.checkpoints.execute(effects)

    def _restart(self, rescale: Rescale) -> None:
        master, order, now_ms = self._master, self._orders[rescale.number], self._master.clock.monotonic_ms()
        self._before = before = master.graph
        try:
            graph = self._graph(order)
            if master.restore_point is not None:
                graph = fitted(graph, master.restore_point.metadata, master.settings.ignore_unclaimed_state)
        except (RescaleRefused, IncompatibleGraph) as error:
            if order.graph is not None:
                master.abandon(f"{_NOT_RESTORED}: {error}")
                return
            # Nothing is taken behind the checkpoint, so the job cannot simply continue.
            cause = f"the job cannot be rescaled, and restarts as it was: {error}"
            master.execute(master.lifecycle.rescale(before.slots, cause, now_ms))
            self._execute(self._machine.on_refused(str(error), self._situation(), now_ms))
            return
        if not order.is_own:
            self._want(graph)
        if self.holds_sources:
            self.holds_sources = False
            if master.settings.adaptive is None:
                master.lifecycle.roster.kept_slots = 0
        master.adopt(graph)
        cause = f"the job continues in {graph.slots} slots instead of {before.slots} ({order.reason})"
        master.execute(master.lifecycle.rescale(graph.slots, cause, now_ms))

    def _report(self, done: rescaling.Rescaled) -> None:
        order = self._orders[done.rescale.number]
        self.report(order.reason, self._before, done.waited_ms, done.checkpoint_ms, done.restart_ms)

    def report(self, reason: str, before: JobGraph, *durations_ms: float) -> None:
        """Remember a change of parallelism. The durations are those of a `RescaleReport`."""
        was = tuple(vertex.parallelism for vertex in before.vertices)
        now = tuple(vertex.parallelism for vertex in self._master.graph.vertices)
        self._reports.append(RescaleReport(self._master.clock.wall_ms(), reason, was, now, *durations_ms))
