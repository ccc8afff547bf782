"""Starts generations: deploys the slots, lets them run, drains what was in flight, and hands out splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.common.failures import describe
from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.driver import Driver
from penstock.jobmaster.master_ports import BlockingWork, MasterPorts, SlotLinks
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.sources import EnumeratorFailed, SplitDistribution
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.slots import SlotRoster
from penstock.protocol.driver.watermark_alignment import AlignedSource, LimitWatermarks, WatermarkAlignment
from penstock.protocol.restore.drain_phases import Draining, ReleaseVertices
from penstock.protocol.restore.rescale import drains
from penstock.protocol.values import messages
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import (
    Deploy,
    DrainReport,
    LimitWatermark,
    Message,
    Peer,
    Register,
    SplitsAssigned,
    StartRun,
)
from penstock.protocol.values.metadata import Metadata


class JobDrain:
    """Drains one generation. `pending` returns the ids of its checkpoints that have been triggered and have not
    ended. `holds_sources`: the first of two steps of a restore, at the end of which the sources are still held.
    """

    def __init__(
        self,
        graph: JobGraph,
        restored: Metadata | None,
        generation: Generation,
        pending: Callable[[], list[int]],
        broadcast: Callable[[Message], None],
        holds_sources: bool = False,
    ) -> None:
        self._generation = generation
        self._pending = pending
        self._broadcast = broadcast
        self._draining: Draining | None = None
        if holds_sources or (restored is not None and drains(restored, vertex_shapes(graph), edge_shapes(graph))):
            edges = [(edge.source, edge.target) for edge in graph.edges]
            self._draining = Draining([vertex.parallelism for vertex in graph.vertices], edges, holds_sources)

    @property
    def is_over(self) -> bool:
        return self._draining is None or self._draining.is_over

    @property
    def is_drained(self) -> bool:
        """Return whether everything that was recovered is read. The sources may still be held."""
        return self._draining is None or self._draining.is_drained

    def begin(self) -> None:
        """Begin, once every subtask of the generation runs and is held."""
        if self._draining is not None:
            self._release(self._draining.start())

    def on_report(self, report: DrainReport) -> None:
        if self._draining is not None and (following := self._draining.on_report(report)) is not None:
            self._release(following)

    def _release(self, release: ReleaseVertices) -> None:
        pending = sorted(self._pending())
        self._broadcast(messages.ReleaseVertices(self._generation, list(release.vertices), pending, release.is_last))


class RunningGeneration:
    """Holds the parts that `Generations` has started, for all others that need them. `id`: None between two
    generations."""

    def __init__(self, roster: SlotRoster, links: SlotLinks) -> None:
        self._roster = roster
        self._links = links
        self.id: Generation | None = None
        self.sources: SplitDistribution | None = None
        self.drain: JobDrain | None = None

    @property
    def is_draining(self) -> bool:
        return self.drain is not None and not self.drain.is_over

    @property
    def is_drained(self) -> bool:
        """Return whether nothing is left to read of what was recovered."""
        return self.drain is None or self.drain.is_drained

    def broadcast(self, message: Message) -> None:
        """Send to the process of every slot."""
        for member in self._roster.members():
            self._links.send(member.process, message)


class Generations:
    """Starts one generation after the other, each in `running`. `source_work`: where sources look for splits."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        running: RunningGeneration,
        reporter: Reporter,
        ports: MasterPorts,
        source_work: BlockingWork,
    ) -> None:
        self._job = job
        self._driver = driver
        self._running = running
        self._reporter = reporter
        self._ports = ports
        self._source_work = source_work
        self._alignment = WatermarkAlignment(())
        self._plan = b""
        self.plan()

    def plan(self) -> None:
        """Pickle the graph that the next generations run. Raises `UnpicklableFunction`."""
        job = self._job
        plan = DeploymentPlan(
            job.identity.job_id,
            job.graph,
            job.configuration,
            job.incarnation,
            job.identity.directory,
            job.settings.checkpointing,
            job.holds_sources,
        )
        self._plan = dumps(plan)

    # ---- the life of a generation -------------------------------------------------------------------------------

    def deploy(self, generation: Generation, members: Sequence[Register]) -> None:
        point = self._job.restore_point
        self._running.id = generation
        self._reporter.on_generation(generation.counter)
        restored = () if point is None else point.metadata.enumerators
        self._end_sources()
        try:
            self._running.sources = SplitDistribution(
                self._job.graph,
                restored,
                self._assign,
                self._source_work,
                self._fail,
                self._ports.console.warning,
                self._ports.clock,
            )
        except EnumeratorFailed as error:
            self._fail(error)
            return
        peers = [Peer(m.slot, m.host, m.data_port, m.process) for m in members]
        data, root = (None, None) if point is None else (point.data, point.root)
        for member in members:
            self._ports.links.send(member.process, Deploy(generation, member.slot, peers, self._plan, data, root))

    def run(self, generation: Generation) -> None:
        """Let every slot run: all have restored their subtasks."""
        job, running, now_ms = self._job, self._running, self._now_ms()
        pending = self._driver.coordinator.pending
        running.broadcast(StartRun(generation))
        metadata = None if job.restore_point is None else job.restore_point.metadata
        running.drain = drain = JobDrain(
            job.graph,
            metadata,
            generation,
            # Without this: a savepoint that an earlier one has left to be written, which no subtask hears of.
            lambda: pending.of(generation),
            running.broadcast,
            job.holds_sources,
        )
        drain.begin()
        self._alignment = WatermarkAlignment(aligned_sources(job.graph))
        self._reporter.on_draining(drain.is_over, now_ms)
        self._reporter.recoveries.running(generation, now_ms, None if metadata is None else metadata.checkpoint_id)
        slots = frozenset(range(job.graph.slots))
        subtasks = sum(vertex.parallelism for vertex in job.graph.vertices)
        if running.sources is not None:
            self._follow_backlog(running.sources)
        spread = self._ports.random()
        self._driver.handle(events.Running(generation, slots, subtasks, spread, job.holds_sources))

    def end(self) -> None:
        """Forget the generation: it has ended."""
        self._reporter.on_generation_ended()
        self._running.id = None
        self._end_sources()
        self._running.drain = None

    def on_drain_report(self, report: DrainReport, now_ms: float) -> None:
        if (drain := self._running.drain) is not None:
            drain.on_report(report)
            self._reporter.on_draining(drain.is_over, now_ms)

    def _now_ms(self) -> float:
        return self._ports.clock.monotonic_ms()

    # ---- watermark alignment ------------------------------------------------------------------------------------

    def on_watermark(self, subtask: SubtaskId, watermark_ms: int | None) -> None:
        """Pass a source's watermark to its group; None: it is idle."""
        self._limit(self._alignment.on_report(subtask, watermark_ms))

    def on_source_ended(self, subtask: SubtaskId) -> None:
        self._limit(self._alignment.on_end_of_data(subtask))

    def _limit(self, limits: Sequence[LimitWatermarks]) -> None:
        generation = self._driver.lifecycle.generation
        for limit in limits:
            if generation is not None:
                self._running.broadcast(LimitWatermark(generation, limit.vertex, limit.watermark_max_ms))

    # ---- splits -------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        sources = self._running.sources
        return None if sources is None else sources.next_deadline_ms()

    def on_time(self, now_ms: float) -> None:
        self._with_sources(lambda sources: sources.on_time(now_ms))

    def on_splits_requested(self, subtask: SubtaskId, now_ms: float) -> None:
        self._with_sources(lambda sources: sources.on_requested(subtask, now_ms))

    def _end_sources(self) -> None:
        if (sources := self._running.sources) is not None:
            sources.end()

    def _with_sources(self, action: Callable[[SplitDistribution], None]) -> None:
        sources = self._running.sources
        if sources is not None:
            try:
                action(sources)
            except EnumeratorFailed as error:
                self._fail(error)
                return
            self._follow_backlog(sources)

    def _follow_backlog(self, sources: SplitDistribution) -> None:
        self._driver.handle(events.BacklogChanged(sources.is_processing_backlog))

    def _fail(self, error: EnumeratorFailed) -> None:
        traceback = describe(error.__cause__ or error)
        self._driver.fail(FailureCause(str(error), traceback, restartable=error.restartable))

    def _assign(self, subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
        lifecycle = self._driver.lifecycle
        generation, member = lifecycle.generation, lifecycle.roster.member(subtask.subtask)
        if generation is not None and member is not None:
            self._ports.links.send(member.process, SplitsAssigned(generation, subtask, splits, no_more))


def aligned_sources(graph: JobGraph) -> list[AlignedSource]:
    """Return the sources that are in a group of watermark alignment."""
    found = []
    for vertex in graph.vertices:
        strategy = vertex.operators[0].watermark_strategy if vertex.is_source else None
        if strategy is not None and strategy.alignment is not None:
            group, drift = strategy.alignment.watermark_group, strategy.alignment.max_allowed_watermark_drift
            found.append(AlignedSource(vertex.index, group, int(drift.ms)))
    return found
