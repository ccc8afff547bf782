"""Starts generations: deploys the slots, lets them run, drains what was in flight, and hands out splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.common.clock import Clock
from penstock.common.configuration import Configuration
from penstock.common.failures import describe
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.console import Console
from penstock.jobmaster.drain import JobDrain
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import BlockingWork, SlotLinks
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.restore import RestorePoint
from penstock.jobmaster.settings import JobSettings
from penstock.jobmaster.sources import EnumeratorFailed, SplitDistribution
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.job.watermark_alignment import AlignedSource, LimitWatermarks, WatermarkAlignment
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


class Master(Protocol):
    """Declares what the start of a generation needs of the JobMaster."""

    graph: JobGraph
    identity: JobIdentity
    incarnation: str
    settings: JobSettings
    links: SlotLinks
    source_work: BlockingWork
    clock: Clock
    console: Console
    lifecycle: Lifecycle
    coordinator: CheckpointCoordinator
    checkpoints: Checkpoints
    job_directory: JobDirectory
    reporter: Reporter
    restore_point: RestorePoint | None
    rescales: Rescales

    def broadcast(self, message: Message) -> None: ...

    def fail(self, cause: FailureCause) -> None: ...


class Generations:
    """Starts one generation after the other. `random` returns the caller's next random number in [0, 1)."""

    def __init__(self, master: Master, configuration: Configuration, random: Callable[[], float]) -> None:
        self._master = master
        self._configuration = configuration
        self._random = random
        self._drain: JobDrain | None = None
        self._alignment = WatermarkAlignment(())
        self._plan = b""
        self.plan()

    def plan(self) -> None:
        """Pickle the graph that the next generations run. Raises `UnpicklableFunction`."""
        master, identity = self._master, self._master.identity
        checkpointing = master.settings.checkpointing
        parts = (
            identity.job_id,
            master.graph,
            self._configuration,
            master.incarnation,
            identity.directory,
            checkpointing,
            master.rescales.holds_sources,
        )
        self._plan = dumps(DeploymentPlan(*parts))

    @property
    def is_draining(self) -> bool:
        return self._drain is not None and not self._drain.is_over

    @property
    def is_drained(self) -> bool:
        """Return whether nothing is left to read of what was recovered."""
        return self._drain is None or self._drain.is_drained

    # ---- the life of a generation -------------------------------------------------------------------------------

    def deploy(self, generation: Generation, members: Sequence[Register]) -> None:
        master, point = self._master, self._master.restore_point
        master.checkpoints.generation = generation
        master.reporter.on_generation(generation.counter)
        restored = () if point is None else point.metadata.enumerators
        self._end_sources()
        try:
            master.checkpoints.sources = SplitDistribution(
                master.graph,
                restored,
                self._assign,
                master.source_work,
                self._fail,
                master.console.warning,
                master.clock,
            )
        except EnumeratorFailed as error:
            self._fail(error)
            return
        peers = [Peer(m.slot, m.host, m.data_port, m.process) for m in members]
        data, root = (None, None) if point is None else (point.data, point.root)
        for member in members:
            master.links.send(member.process, Deploy(generation, member.slot, peers, self._plan, data, root))

    def run(self, generation: Generation) -> None:
        """Let every slot run: all have restored their subtasks."""
        master, now_ms = self._master, self._master.clock.monotonic_ms()
        master.broadcast(StartRun(generation))
        metadata = None if master.restore_point is None else master.restore_point.metadata
        self._drain = JobDrain(
            master.graph,
            metadata,
            generation,
            lambda: master.coordinator.pending.ids,
            master.broadcast,
            master.rescales.holds_sources,
        )
        self._drain.begin()
        self._alignment = WatermarkAlignment(aligned_sources(master.graph))
        master.reporter.on_draining(self._drain.is_over, now_ms)
        master.reporter.recoveries.running(generation, now_ms, None if metadata is None else metadata.checkpoint_id)
        master.job_directory.plan_sweep(generation, now_ms)
        slots = frozenset(range(master.graph.slots))
        subtasks = sum(vertex.parallelism for vertex in master.graph.vertices)
        if master.checkpoints.sources is not None:
            self._follow_backlog(master.checkpoints.sources)
        running = master.coordinator.on_running(
            generation, slots, subtasks, now_ms, self._random(), master.rescales.holds_sources
        )
        master.checkpoints.execute(running)

    def end(self, cause: str) -> None:
        """Abort the checkpoints of the generation: it has ended."""
        master = self._master
        master.reporter.on_generation_ended()
        master.checkpoints.generation = None
        self._end_sources()
        self._drain = None
        master.checkpoints.execute(master.coordinator.on_stopped(master.clock.monotonic_ms(), detail=cause))

    def on_drain_report(self, report: DrainReport, now_ms: float) -> None:
        if self._drain is not None:
            self._drain.on_report(report)
            self._master.reporter.on_draining(self._drain.is_over, now_ms)

    # ---- watermark alignment ------------------------------------------------------------------------------------

    def on_watermark(self, subtask: SubtaskId, watermark_ms: int | None) -> None:
        """Pass a source's watermark to its group; None: it is idle."""
        self._limit(self._alignment.on_report(subtask, watermark_ms))

    def on_source_ended(self, subtask: SubtaskId) -> None:
        self._limit(self._alignment.on_end_of_data(subtask))

    def _limit(self, limits: Sequence[LimitWatermarks]) -> None:
        generation = self._master.lifecycle.generation
        for limit in limits:
            if generation is not None:
                self._master.broadcast(LimitWatermark(generation, limit.vertex, limit.watermark_max_ms))

    # ---- splits -------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        sources = self._master.checkpoints.sources
        return None if sources is None else sources.next_deadline_ms()

    def on_time(self, now_ms: float) -> None:
        self._with_sources(lambda sources: sources.on_time(now_ms))

    def on_splits_requested(self, subtask: SubtaskId, now_ms: float) -> None:
        self._with_sources(lambda sources: sources.on_requested(subtask, now_ms))

    def _end_sources(self) -> None:
        if (sources := self._master.checkpoints.sources) is not None:
            sources.end()

    def _with_sources(self, action: Callable[[SplitDistribution], None]) -> None:
        sources = self._master.checkpoints.sources
        if sources is not None:
            try:
                action(sources)
            except EnumeratorFailed as error:
                self._fail(error)
                return
            self._follow_backlog(sources)

    def _follow_backlog(self, sources: SplitDistribution) -> None:
        self._master.coordinator.on_backlog(sources.is_processing_backlog, self._master.clock.monotonic_ms())

    def _fail(self, error: EnumeratorFailed) -> None:
        traceback = describe(error.__cause__ or error)
        self._master.fail(FailureCause(str(error), traceback, restartable=error.restartable))

    def _assign(self, subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
        lifecycle = self._master.lifecycle
        generation, member = lifecycle.generation, lifecycle.roster.member(subtask.subtask)
        if generation is not None and member is not None:
            self._master.links.send(member.process, SplitsAssigned(generation, subtask, splits, no_more))


def aligned_sources(graph: JobGraph) -> list[AlignedSource]:
    """Return the sources that are in a group of watermark alignment."""
    found = []
    for vertex in graph.vertices:
        strategy = vertex.operators[0].watermark_strategy if vertex.is_source else None
        if strategy is not None and strategy.alignment is not None:
            group, drift = strategy.alignment.watermark_group, strategy.alignment.max_allowed_watermark_drift
            found.append(AlignedSource(vertex.index, group, int(drift.ms)))
    return found
