"""Changes the parallelism of a job: rescales it when somebody orders that, and lets it follow the number of processes.

`Rescales` executes `protocol.driver.rescaling`: it computes the graph, asks for slots and the checkpoint, and restarts
the job from it. `AdaptiveScheduler` executes `protocol.driver.adaptive_scaling`: it starts the job in fewer slots, and
orders rescales to more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
from penstock.protocol.driver.adaptive_scaling import Lowered
from penstock.protocol.driver.driver_machine import NOT_RESTORED
from penstock.protocol.driver.rescaling import Rescale, Rescaled

_REMEMBERED_MAX = 32
RESTORED = "restored at another parallelism"
"""The reason of a second step of a restore, in the history of rescales."""


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
        self._orders: dict[int, RescaleOrder] = {}
        self._has_ended = False
        self._numbers = count(1)
        self._checkpoint_id: int | None = None
        self._reports: deque[RescaleReport] = deque(maxlen=_REMEMBERED_MAX)

    @property
    def reports(self) -> tuple[RescaleReport, ...]:
        return tuple(self._reports)

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
        self._driver.handle(events.RescaleOrdered(rescale, self._facts()))

    def _answer_as_is(self, order: RescaleOrder) -> None:
        """Answer an order for what the job is."""
        if not order.is_own:
            self._want(self._job.graph)
            # An adaptive job that runs like this for want of slots has asked for more, which its user gives up.
            self._driver.handle(events.SlotsUnneeded())
        order.answer(None)

    def runs_already(self, rescale: Rescale) -> bool:
        """Return whether the job runs as a rescale orders."""
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
        self._driver.handle(events.RescaleOrdered(rescale, self._facts()))

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

    def _facts(self) -> events.Facts:
        return events.Facts(self._slots.capacity, self.wanted.slots, self._is_aligned, self._running.is_drained)

    # ---- what happens -------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Let the machine continue, if its slots or generation are there. Costs nothing while nothing is ordered."""
        if self._orders or self._job.settings.adaptive is not None:
            self._driver.handle(events.Looked(self._facts()))

    def on_lowered(self, why: str) -> None:
        """Give up the rescale from whose checkpoint the job restarts, or the second step of its restore: it restarts in
        fewer slots."""
        # 12.11: a rescale whose slots are lost is given up.
        self._job.holds_sources = False
        self._driver.handle(events.RescaleRefused(why))

    def end(self, why: str) -> None:
        """Answer all callers that still wait, and all later ones: the job has ended."""
        self._has_ended = True
        self._driver.handle(events.RescalesEnded(why))

    # ---- effects ------------------------------------------------------------------------------------------------

    def done(self, done: Rescaled) -> None:
        order = self._orders.pop(done.rescale.number)
        self.report(order.reason, self._before, done.waited_ms, done.checkpoint_ms, done.restart_ms)
        order.answer(None)

    def runs(self, rescale: Rescale) -> None:
        """Answer an order of which the job runs already."""
        self._answer_as_is(self._orders.pop(rescale.number))

    def give_up(self, rescale: Rescale, why: str) -> None:
        self._orders.pop(rescale.number).answer(RescaleFailed(f"the job was not rescaled: {why}"))

    def restart(self, rescale: Rescale) -> None:
        job, driver, order = self._job, self._driver, self._orders[rescale.number]
        self._before = before = job.graph
        try:
            graph = self._graph(order)
            if job.restore_point is not None:
                graph = fitted(graph, job.restore_point.metadata, job.settings.ignore_unclaimed_state)
        except (RescaleRefused, IncompatibleGraph) as error:
            if order.graph is not None:
                driver.abandon(f"{NOT_RESTORED}: {error}")
                return
            # Nothing is taken behind the checkpoint, so the job cannot simply continue.
            cause = f"the job cannot be rescaled, and restarts as it was: {error}"
            driver.handle(events.Rescaled(before.slots, cause))
            driver.handle(events.RescaleRefused(str(error)))
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
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._rescales = rescales
        self._adopt = adopt
        self._ports = ports
        self._before = job.graph
        self._reason = ""
        if job.settings.adaptive is not None:
            driver.handle(events.SlotsKept(job.graph.slots))

    def lowered(self, done: Lowered) -> None:
        self._rescales.report(self._reason, self._before, done.waited_ms, 0.0, done.restart_ms)

    def lower(self, slots: int, waited_ms: float) -> None:
        job, life, warn = self._job, self._driver.lifecycle, self._ports.console.warning
        before = job.graph
        try:
            fit = Fit(rescaled(before, self._rescales.wanted, slots))
            if job.restore_point is not None:
                settings, metadata = job.settings, job.restore_point.metadata
                fit = fitted_in_steps(fit.graph, metadata, settings.ignore_unclaimed_state, settings.checkpointing)
        except (RescaleRefused, IncompatibleGraph) as error:
            warn(f"the job cannot run in {slots} slot(s) now, so slots share processes. {error}")
            self._driver.handle(events.NotLowered())
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
        self._driver.handle(events.NotLowered())

    def raise_to(self, slots: int) -> None:
        def answered(failed: RescaleFailed | None) -> None:
            if failed is not None:
                self._ports.console.warning(f"the job does not get {slots} slots: {failed}")
            self._driver.handle(events.Raised(failed is None))

        self._rescales.order(RescaleOrder(slots, answered, MORE_SLOTS, is_own=True))
