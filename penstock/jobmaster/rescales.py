"""Changes the parallelism of a job: rescales it when somebody orders that, and lets it follow the number of processes.

`Rescales` executes `protocol.driver.rescaling`: it computes the graph, asks for slots and the checkpoint, and restarts
the job from it. `AdaptiveScheduler` executes `protocol.driver.adaptive_scaling`: it starts the job in fewer slots, and
orders rescales to more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from penstock.common.job_execution import RescaleFailed
from penstock.common.options import JobManagerOptions
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import Fit, fitted, fitted_in_steps
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import PartitionerKind
from penstock.graph.rescaled_graph import RescaleRefused, rescaled
from penstock.jobmaster.current_job import CurrentJob, Driver
from penstock.jobmaster.generations import RunningGeneration
from penstock.jobmaster.ports import MasterPorts, RescaleOrder
from penstock.monitoring.report import RescaleReport
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver import rescaling
from penstock.protocol.driver.adaptive_scaling import (
    AdaptiveEffect,
    AdaptiveScaling,
    AdaptiveSettings,
    Lower,
    Lowered,
    Raise,
    Resources,
)
from penstock.protocol.driver.driver_effects import FailureCause, TriggerCheckpoint
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.driver.rescaling import Rescale, Rescaling, RescalingEffect, Situation
from penstock.protocol.values.reasons import FailureReason

_REMEMBERED_MAX = 32
_NOT_RESTORED = "the job cannot be restored at the parallelism that it is to have"
RESTORED = "restored at another parallelism"
"""The reason of a second step of a restore, in the history of rescales."""
_FAILED_OVER = (FailureReason.JOB_FAILOVER, FailureReason.SUBSUMED)


class Rescales:
    """Rescales a job on request. `adopt` takes the graph at another parallelism, before it is deployed."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        running: RunningGeneration,
        adopt: Callable[[JobGraph], None],
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._running = running
        self._adopt = adopt
        self._clock = ports.clock
        self._console = ports.console
        self._slots = ports.slots
        self._declared = self._before = job.graph
        self.wanted = job.graph
        """The graph as the user wants it: as declared, or as the newest rescale that he has ordered."""
        self._machine = Rescaling(self._is_done)
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
        if self._has_ended:
            order.answer(RescaleFailed("the job has ended"))
            return
        if not self._job.settings.checkpointing:
            why = "a job is rescaled from a checkpoint: set execution.checkpointing.interval"
            order.answer(RescaleFailed(why))
            return
        try:
            graph = self._graph(order)
        except RescaleRefused as error:
            order.answer(RescaleFailed(str(error)))
            return
        if graph == self._job.graph and not self._orders:
            self._answer_as_is(order)
            return
        number = next(self._numbers)
        self._orders[number] = order
        rescale = Rescale(number, graph.slots)
        self._execute(self._machine.on_ordered(rescale, self._situation(), self._clock.monotonic_ms()))

    def _answer_as_is(self, order: RescaleOrder) -> None:
        """Answer an order for what the job is."""
        if not order.is_own:
            self._want(self._job.graph)
            # An adaptive job that runs like this for want of slots has asked for more, which its user gives up.
            self._driver.handle(events.SlotsUnneeded())
        order.answer(None)

    def _is_done(self, rescale: Rescale) -> bool:
        order = self._orders[rescale.number]
        try:
            return order.graph is None and self._graph(order) == self._job.graph
        except RescaleRefused:
            return False  # its turn says why

    def continue_as(self, graph: JobGraph, is_own: bool = False) -> None:
        """Hold the sources from the next generation on, and continue as `graph` when everything in flight is read. The
        caller lets the job run as its checkpoint was taken until then. `is_own`: not its user asks for that graph."""
        self._job.holds_sources = True
        if not is_own:
            # Of processes that have been submitted for the second step.
            self._driver.handle(events.SlotsKept(graph.slots))
        number = next(self._numbers)
        self._orders[number] = RescaleOrder(graph.slots, self._restored, RESTORED, is_own, graph)
        rescale = Rescale(number, graph.slots, is_restore=True)
        self._execute(self._machine.on_ordered(rescale, self._situation(), self._clock.monotonic_ms()))

    def _restored(self, failed: RescaleFailed | None) -> None:
        if failed is not None and not self._has_ended:
            self._console.warning(str(failed))

    def _graph(self, order: RescaleOrder) -> JobGraph:
        if order.graph is not None:
            return order.graph
        if not order.is_own:
            return rescaled(self._job.graph, self._declared, order.parallelism)
        assert isinstance(order.parallelism, int)
        return rescaled(self._job.graph, self.wanted, min(order.parallelism, self.wanted.slots))

    def _want(self, graph: JobGraph) -> None:
        self.wanted = graph
        if self._job.settings.adaptive is not None:
            self._driver.handle(events.SlotsKept(graph.slots))

    @property
    def _is_aligned(self) -> bool:
        """Return whether the checkpoint must hold no rows in flight. The receivers of a broadcast have read the same
        rows only where there are none."""
        return any(edge.partitioner.kind is PartitionerKind.BROADCAST for edge in self._job.graph.edges)

    def _situation(self) -> Situation:
        life, capacity = self._driver.lifecycle, self._slots.capacity
        running = life.generation if life.phase is Phase.RUNNING and not life.is_finishing else None
        processes = len(life.roster.processes)
        return Situation(
            None if running is None else running.counter,
            self._is_aligned and not self._running.is_drained,
            life.roster.slots,
            processes,
            life.settings.spares,
            capacity is None or processes < capacity,
            self._job.settings.adaptive is None,
        )

    # ---- what happens -------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Continue, if what was waited for is there. Costs nothing while nothing is ordered."""
        if self._orders:
            self._execute(self._machine.look(self._situation(), self._clock.monotonic_ms()))

    def on_published(self, checkpoint_id: int) -> None:
        """Restart, if this is the checkpoint that was taken for it."""
        if checkpoint_id == self._checkpoint_id:
            self._checkpoint_id = None
            self._execute(self._machine.on_published(self._clock.monotonic_ms()))

    def on_not_taken(self, reason: FailureReason, detail: str) -> None:
        self._checkpoint_id = None
        why = f"its checkpoint failed ({reason}{f': {detail}' if detail else ''})"
        why += "" if self._job.holds_sources else "; the job continues as it was"
        now_ms = self._clock.monotonic_ms()
        self._execute(self._machine.on_not_taken(why, reason in _FAILED_OVER, self._situation(), now_ms))

    def on_lowered(self, why: str) -> None:
        """Give up the rescale from whose checkpoint the job restarts, or the second step of its restore: it restarts in
        fewer slots."""
        # 12.11: a rescale whose slots are lost is given up.
        self._job.holds_sources = False
        self._execute(self._machine.on_refused(why, self._situation(), self._clock.monotonic_ms()))

    def end(self, why: str) -> None:
        """Answer all callers that still wait, and all later ones: the job has ended."""
        self._has_ended = True
        self._execute(self._machine.end(why))

    def _execute(self, effects: Sequence[RescalingEffect]) -> None:
        for effect in effects:
            match effect:
                case rescaling.ProvideSlots(slots):
                    self._driver.handle(events.SlotsNeeded(slots))
                case rescaling.TakeCheckpoint():
                    self._take_checkpoint()
                case rescaling.RestartWith(rescale):
                    self._restart(rescale)
                case rescaling.RestoreAgain(why):
                    self._driver.fail(FailureCause(f"{_NOT_RESTORED}: {why}"))
                case rescaling.Rescaled(rescale):
                    self._report(effect)
                    self._orders.pop(rescale.number).answer(None)
                case rescaling.RunsAlready(rescale):
                    self._answer_as_is(self._orders.pop(rescale.number))
                case rescaling.NotRescaled(rescale, why):
                    self._driver.handle(events.SlotsUnneeded())
                    self._orders.pop(rescale.number).answer(RescaleFailed(f"the job was not rescaled: {why}"))

    def _take_checkpoint(self) -> None:
        now_ms = self._clock.monotonic_ms()
        effects = self._driver.decide(events.RescaleAsked(self._is_aligned))
        for effect in effects:
            if isinstance(effect, TriggerCheckpoint):
                self._checkpoint_id = effect.barrier.checkpoint_id
                self._machine.on_triggered(now_ms)
        self._driver.execute(effects)

    def _restart(self, rescale: Rescale) -> None:
        job, driver, order = self._job, self._driver, self._orders[rescale.number]
        self._before = before = job.graph
        try:
            graph = self._graph(order)
            if job.restore_point is not None:
                graph = fitted(graph, job.restore_point.metadata, job.settings.ignore_unclaimed_state)
        except (RescaleRefused, IncompatibleGraph) as error:
            if order.graph is not None:
                driver.abandon(f"{_NOT_RESTORED}: {error}")
                return
            # Nothing is taken behind the checkpoint, so the job cannot simply continue.
            cause = f"the job cannot be rescaled, and restarts as it was: {error}"
            driver.handle(events.Rescaled(before.slots, cause))
            self._execute(self._machine.on_refused(str(error), self._situation(), self._clock.monotonic_ms()))
            return
        if not order.is_own:
            self._want(graph)
        if job.holds_sources:
            job.holds_sources = False
            if job.settings.adaptive is None:
                driver.handle(events.SlotsKept(0))
        self._adopt(graph)
        cause = f"the job continues in {graph.slots} slots instead of {before.slots} ({order.reason})"
        driver.handle(events.Rescaled(graph.slots, cause))

    def _report(self, done: rescaling.Rescaled) -> None:
        order = self._orders[done.rescale.number]
        self.report(order.reason, self._before, done.waited_ms, done.checkpoint_ms, done.restart_ms)

    def report(self, reason: str, before: JobGraph, *durations_ms: float) -> None:
        """Remember a change of parallelism. The durations are those of a `RescaleReport`."""
        was = tuple(vertex.parallelism for vertex in before.vertices)
        now = tuple(vertex.parallelism for vertex in self._job.graph.vertices)
        self._reports.append(RescaleReport(self._clock.wall_ms(), reason, was, now, *durations_ms))


AT_THE_START, AFTER_A_LOSS, MORE_SLOTS = "too few slots at the start", "slots lost", "more slots available"
"""Reasons in the history of rescales."""


class AdaptiveScheduler:
    """Lets the parallelism follow the processes. `adopt` takes the job's graph at another parallelism, before anything
    is deployed.
    """

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        rescales: Rescales,
        adopt: Callable[[JobGraph], None],
        settings: AdaptiveSettings,
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._rescales = rescales
        self._adopt = adopt
        self._ports = ports
        self._machine = AdaptiveScaling(settings)
        self._before = job.graph
        self._reason = ""
        driver.handle(events.SlotsKept(job.graph.slots))

    def next_deadline_ms(self) -> float | None:
        # `look` ignores a job that is over, so a deadline that has passed would be reported again and again.
        return None if self._driver.lifecycle.is_over else self._machine.next_deadline_ms()

    def look(self) -> None:
        """Let the job have other slots, if it is time. Call it after each event, and before the lifecycle's time."""
        life = self._driver.lifecycle
        if not life.is_over:
            self._execute(self._machine.look(self._resources(), self._now_ms()))
            self._driver.handle(events.SlotsShared(self._machine.may_share))

    def _now_ms(self) -> float:
        return self._ports.clock.monotonic_ms()

    def _resources(self) -> Resources:
        life, rescales, capacity = self._driver.lifecycle, self._rescales, self._ports.slots.capacity
        is_running = life.generation is not None and life.phase is Phase.RUNNING and not life.is_finishing
        processes = life.roster.own_processes
        return Resources(
            life.generation.counter if is_running and life.generation is not None else None,
            life.is_short,
            life.is_prepared,
            life.roster.slots,
            rescales.wanted.slots,
            processes,
            may_come=capacity is None or processes < capacity,
            gather_by_ms=life.gather_by_ms,
            is_rescaled=not rescales.is_idle,
        )

    def _execute(self, effects: Sequence[AdaptiveEffect]) -> None:
        for effect in effects:
            match effect:
                case Lower(slots, waited_ms):
                    self._lower(slots, waited_ms)
                case Lowered(waited_ms, restart_ms):
                    self._rescales.report(self._reason, self._before, waited_ms, 0.0, restart_ms)
                case Raise(slots):
                    self._raise(slots)

    def _lower(self, slots: int, waited_ms: float) -> None:
        job, life, warn = self._job, self._driver.lifecycle, self._ports.console.warning
        before = job.graph
        try:
            fit = Fit(rescaled(before, self._rescales.wanted, slots))
            if job.restore_point is not None:
                settings, metadata = job.settings, job.restore_point.metadata
                fit = fitted_in_steps(fit.graph, metadata, settings.ignore_unclaimed_state, settings.checkpointing)
        except (RescaleRefused, IncompatibleGraph) as error:
            warn(f"the job cannot run in {slots} slot(s) now, so slots share processes. {error}")
            self._machine.on_not_lowered(self._now_ms())
            return
        if fit.then is not None:
            self._lower_in_steps(fit, slots)
            return
        missing = ", ".join(map(str, life.roster.missing))
        warn(
            f"the job runs in {slots} slot(s) instead of {before.slots}: no process has come for slot(s) {missing} in "
            f"{waited_ms / 1000:.1f} s ({JobManagerOptions.SUBMISSION_RESOURCE_STABILIZATION_TIMEOUT.key}). It gets "
            "more slots when Spark has more task places"
        )
        self._before, self._reason = before, AFTER_A_LOSS if life.has_run else AT_THE_START
        self._rescales.on_lowered(f"slots were lost for good, and the job restarts in {slots}")
        self._adopt(fit.graph)
        self._driver.handle(events.Resized(slots))

    def _lower_in_steps(self, fit: Fit, slots: int) -> None:
        """Let processes share the slots that are missing, until the job can run in fewer."""
        point = self._job.restore_point
        assert fit.then is not None and point is not None
        if self._rescales.is_idle:
            told = fit.text(point.metadata.checkpoint_id)
            self._ports.console.warning(
                f"the job cannot run in {slots} slot(s) at once, so slots share processes: {told}"
            )
            self._rescales.continue_as(fit.then, is_own=True)
            self._adopt(fit.graph)
            if fit.graph.slots != self._driver.lifecycle.roster.slots:
                self._driver.handle(events.Resized(fit.graph.slots))
        self._machine.on_not_lowered(self._now_ms())

    def _raise(self, slots: int) -> None:
        def answered(failed: RescaleFailed | None) -> None:
            if failed is not None:
                self._ports.console.warning(f"the job does not get {slots} slots: {failed}")
            self._machine.on_raised(failed is None, self._now_ms())

        self._rescales.order(RescaleOrder(slots, answered, MORE_SLOTS, is_own=True))
