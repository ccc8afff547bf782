"""Runs generations: deploys the slots, lets them run, drains what was in flight, and hands out splits.

A checkpoint's snapshot of the enumerators is taken right before its trigger is sent, and splits travel to a slot on
the connection that the trigger takes. So what was handed out before the snapshot arrives before the trigger, and what
is handed out later arrives later: every split is in the snapshot of either the enumerator or a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.common.clock import Clock
from penstock.common.program.failures import describe
from penstock.connectors.base import PermanentError, SplitEnumerator
from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph, Operator
from penstock.graph.pickling import dumps
from penstock.jobmaster.current_job import CurrentJob, Driver
from penstock.jobmaster.ports import BlockingWork, MasterPorts, SlotLinks
from penstock.jobmaster.reports import Reporter
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
from penstock.protocol.values.metadata import EnumeratorState, Metadata, SubtaskSnapshot

ASK_AGAIN_MS = 200.0

T = TypeVar("T")


class EnumeratorFailed(Exception):
    """Wraps the error of a source's enumerator. The message names the source."""

    @property
    def restartable(self) -> bool:
        return not isinstance(self.__cause__, PermanentError)


@dataclass
class _Source:
    """Holds a source's enumerator, and its calls in progress."""

    operator: Operator
    enumerator: SplitEnumerator
    discover_at_ms: float | None = None
    """The time at which the next discovery begins; None while one is in progress, and where there is none."""
    is_discovering: bool = False
    discovery_number: int = 0
    """The enumerator's number for which a discovery has begun last, or is about to."""
    has_looked: bool = False
    """True if the enumerator knows all splits that there are now: it discovers none, or has done so for its number."""
    is_reporting: bool = False
    completed: list[bytes] | None = None
    """The positions of the newest completed checkpoint that no report has begun for."""


class SplitDistribution:
    """Distributes the splits of one generation. `assign(subtask, splits, no_more)` sends them. Every method may raise
    `EnumeratorFailed`.

    `work` runs what enumerators may block in; `failed` is called in the owner's loop with what that raised, `warn` with
    what could not be reported outside.
    """

    def __init__(
        self,
        graph: JobGraph,
        restored: Sequence[EnumeratorState],
        assign: Callable[[SubtaskId, list[bytes], bool], None],
        work: BlockingWork,
        failed: Callable[[EnumeratorFailed], None],
        warn: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._assign = assign
        self._work = work
        self._failed = failed
        self._warn = warn
        self._clock = clock
        self._is_over = False
        self._when_reported: list[Callable[[], None]] = []
        self._waiting: dict[SubtaskId, None] = {}
        self._told: set[SubtaskId] = set()
        """The waiting subtasks that know that there is no split for them now."""
        self._ask_again_ms: float | None = None
        self._sources: dict[int, _Source] = {}
        states = {state.operator: state.data for state in restored}
        for vertex in graph.vertices:
            if vertex.is_source:
                head = vertex.operators[0]
                data = states.get(head.uid)
                create = partial(head.function.create_enumerator, vertex.parallelism, data)
                enumerator = _guarded(head, create)
                self._sources[vertex.index] = _Source(
                    head,
                    enumerator,
                    clock.monotonic_ms() if enumerator.discovers else None,
                    discovery_number=enumerator.discovery_number,
                    has_looked=not enumerator.discovers,
                )

    @property
    def is_processing_backlog(self) -> bool:
        """Return whether any source works off a backlog."""
        return any(source.enumerator.is_processing_backlog for source in self._sources.values())

    def end(self) -> None:
        """Ignore pending answers: the generation has ended."""
        self._is_over = True

    def on_requested(self, subtask: SubtaskId, now_ms: float) -> None:
        source = self._sources.get(subtask.vertex)
        if source is None:
            return
        number = source.enumerator.discovery_number
        splits = _guarded(source.operator, lambda: source.enumerator.next_splits(subtask.subtask))
        self._follow_discovery(source, now_ms)
        if source.enumerator.discovery_number != number:
            # Something else is read from now on. Without this: those that wait are idle until they are asked for again,
            # and this subtask's first rows make theirs late.
            self._waiting.pop(subtask, None)
            self._ask_for_waiting(subtask.vertex, now_ms)
        if splits is None or splits:
            self._send(subtask, splits or [], no_more=splits is None)
            return
        self._waiting[subtask] = None
        if self._ask_again_ms is None:
            self._ask_again_ms = now_ms + ASK_AGAIN_MS
        knows_all = source.has_looked and source.discovery_number == source.enumerator.discovery_number
        if knows_all and subtask not in self._told:
            self._told.add(subtask)
            self._assign(subtask, [], False)

    def _send(self, subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
        self._waiting.pop(subtask, None)
        self._told.discard(subtask)
        self._assign(subtask, splits, no_more)

    def _ask_for_waiting(self, vertex: int, now_ms: float) -> None:
        for subtask in [waiting for waiting in self._waiting if waiting.vertex == vertex]:
            if subtask in self._waiting:
                self.on_requested(subtask, now_ms)

    def next_deadline_ms(self) -> float | None:
        due_ms = [self._ask_again_ms, *[source.discover_at_ms for source in self._sources.values()]]
        return min((at_ms for at_ms in due_ms if at_ms is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        """Begin discoveries that are due, and let readers that found nothing ask again."""
        for index, source in self._sources.items():
            if source.discover_at_ms is not None and source.discover_at_ms <= now_ms and not self._is_over:
                self._discover(index, source)
        if self._ask_again_ms is None or self._ask_again_ms > now_ms:
            return
        self._ask_again_ms = None
        for index in self._sources:
            self._ask_for_waiting(index, now_ms)

    # ---- what may block -----------------------------------------------------------------------------------------

    @staticmethod
    def _follow_discovery(source: _Source, now_ms: float) -> None:
        """Begin a discovery if there is something else to discover; behind the present one, if there is one."""
        number = source.enumerator.discovery_number
        if number != source.discovery_number and not source.is_discovering:
            source.discovery_number = number
            source.discover_at_ms = now_ms if source.enumerator.discovers else None
            source.has_looked = not source.enumerator.discovers

    def _discover(self, index: int, source: _Source) -> None:
        source.discover_at_ms, source.is_discovering = None, True
        name = source.operator.name

        def done(found: Any) -> None:
            source.is_discovering = False
            if self._is_over:
                return
            try:
                if isinstance(found, Exception):
                    raise found
                assigned = _guarded(source.operator, lambda: source.enumerator.on_discovered(found))
            except EnumeratorFailed as error:
                self._failed(error)
                return
            for subtask, splits in assigned.items():
                self._send(SubtaskId(index, subtask), splits, no_more=False)
            source.has_looked = True
            now_ms = self._clock.monotonic_ms()
            if (interval_ms := source.enumerator.discovery_interval_ms) is not None:
                source.discover_at_ms = now_ms + interval_ms
            self._follow_discovery(source, now_ms)
            self._ask_for_waiting(index, now_ms)

        self._work.submit(f"discover {name}", lambda: _guarded(source.operator, source.enumerator.discover), done)

    def checkpoint_completed(self, subtasks: Sequence[SubtaskSnapshot]) -> None:
        """Let enumerators report a checkpoint's positions outside the job. `subtasks`: the checkpoint's snapshots."""
        for source in self._sources.values():
            if source.enumerator.wants_checkpoints and not self._is_over:
                uid = source.operator.uid
                own = (uid, "splits", "")
                parts = [p for s in subtasks for p in s.parts if (p.operator, p.name, p.kind) == own]
                source.completed = [item for part in parts for item in part.items]
                if not source.is_reporting:
                    self._report(source)

    def when_reported(self, action: Callable[[], None]) -> None:
        """Call `action` once all positions are reported, or could not be."""
        self._when_reported.append(action)
        self._settle_reports()

    def _settle_reports(self) -> None:
        if not any(source.is_reporting for source in self._sources.values()):
            waiting, self._when_reported = self._when_reported, []
            for action in waiting:
                action()

    def _report(self, source: _Source) -> None:
        splits, source.completed = source.completed or [], None
        source.is_reporting = True

        def done(result: Any) -> None:
            source.is_reporting = False
            if self._is_over:
                return
            if isinstance(result, Exception):
                self._warn(
                    f"source '{source.operator.name}' could not report its positions, which changes nothing of this "
                    f"job: {type(result).__name__}: {result}"
                )
            if source.completed is not None:
                self._report(source)
            self._settle_reports()

        self._work.submit("report positions", lambda: source.enumerator.checkpoint_completed(splits), done)

    def snapshot(self) -> list[EnumeratorState]:
        # 10.1: nothing is handed out from here until the trigger is sent.
        return [
            EnumeratorState(s.operator.uid, _guarded(s.operator, s.enumerator.snapshot)) for s in self._sources.values()
        ]


def _guarded(operator: Operator, call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise EnumeratorFailed(
            f"the enumerator of source '{operator.name}', which lists what to read, failed: "
            f"{type(error).__name__}: {error}"
        ) from error


class FinalPositions:
    """Reports by enumerators that are made for this alone: the generation may be over, or have been another driver's.

    What cannot be reported is a warning. `work`: where sources block.
    """

    def __init__(self, job: CurrentJob, work: BlockingWork, ports: MasterPorts) -> None:
        self._job = job
        self._work = work
        self._ports = ports

    def report(
        self, enumerators: Sequence[EnumeratorState], subtasks: Sequence[SubtaskSnapshot], then: Callable[[], None]
    ) -> None:
        """Report positions, then call `then`. Without this: a job that reads what its group has not committed begins
        where this one has begun.

        Args:
            enumerators: Of the last checkpoint.
            subtasks: Of the last checkpoint, with the splits of their readers.
            then: Ends the job.
        """
        if not any(part.name == "splits" and part.items for subtask in subtasks for part in subtask.parts):
            then()
            return
        warn = self._ports.console.warning
        try:
            sources = SplitDistribution(
                self._job.graph, enumerators, _assign, self._work, _failed, warn, self._ports.clock
            )
        except EnumeratorFailed as error:
            warn(f"the positions of the job's last checkpoint could not be reported: {error}")
            then()
            return
        sources.checkpoint_completed(subtasks)
        sources.when_reported(then)


def _assign(subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
    """Do nothing: nobody has asked for splits."""


def _failed(error: EnumeratorFailed) -> None:
    """Do nothing: nothing is discovered."""


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
        """Return whether all layers have been read."""
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
