"""Runs the JobMaster: the life of a job and its checkpoints, driven by events, carried out through ports.

It lives in one thread (or in the simulation's scheduler), never blocks, and knows connections only by process ids.
Whatever may block (storage, commits) is handed to `BlockingWork`, which calls back into the same loop. `protocol.job`
and `protocol.checkpoint` make the decisions; this module executes their effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.common.configuration import Configuration
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.adaptive import AdaptiveScheduler
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.commits import CommitFailed, CommitQueue
from penstock.jobmaster.ending import JobEnding
from penstock.jobmaster.events import (
    CancelRequested,
    CheckpointRequested,
    Event,
    LinkLost,
    MessageReceived,
    RescaleRequested,
    SavepointRequested,
)
from penstock.jobmaster.generations import Generations
from penstock.jobmaster.history import CheckpointHistory
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.outcome import JobOutcome
from penstock.jobmaster.ports import BlockingWork, MasterPorts, RefreshingWork
from penstock.jobmaster.recovery import JobRecovery
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.restore import RestorePoint
from penstock.jobmaster.savepoints import Savepoints
from penstock.jobmaster.settings import JobSettings, restart_strategy
from penstock.jobmaster.slot_messages import SlotMessages
from penstock.monitoring.report import JobReport
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job import lifecycle_effects as effects
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.messages import (
    BecomeSpare,
    Cancel,
    Leave,
    Message,
    Restore,
)
from penstock.protocol.values.reasons import FailureReason


class JobMaster:
    """Runs one job. `incarnation`: letters and digits, random per driver. Raises `OptionError` and
    `UnpicklableFunction`.

    The owner calls `start`, then `handle` for each event and `on_time` at `next_deadline_ms`, until there is an
    `outcome`. `report` may be read from any thread.
    """

    def __init__(
        self, graph: JobGraph, configuration: Configuration, identity: JobIdentity, incarnation: str, ports: MasterPorts
    ) -> None:
        self.graph = graph
        self.identity = identity
        self.incarnation = incarnation
        self.settings = JobSettings.from_configuration(configuration, graph.slots)
        self.links = ports.links
        self.slots = ports.slots
        self.clock = ports.clock
        self.console = ports.console
        self.open_store = ports.open_store
        self.work: BlockingWork = RefreshingWork(ports.work, self.refresh)
        commit_work = RefreshingWork(ports.commit_work or ports.work, self.refresh)
        self.source_work: BlockingWork = RefreshingWork(ports.source_work or ports.work, self.refresh)
        self.lifecycle = Lifecycle(
            self.settings.lifecycle, restart_strategy(configuration), lambda: 2 * ports.random() - 1
        )
        self.coordinator = CheckpointCoordinator(
            self.settings.coordinator, vertex_names=[vertex.name for vertex in graph.vertices]
        )
        self.history = CheckpointHistory(self.settings.history_max, identity.directory)
        self.job_directory = JobDirectory(
            self.settings,
            identity,
            incarnation,
            self.clock,
            self.work,
            ports.open_store,
            ports.host,
            ports.pid,
            self.console.warning,
        )
        self.commits = CommitQueue(
            graph,
            commit_work,
            self.clock,
            self.settings.coordinator.timeout_ms,
            self._commit_failed,
            self.console.warning,
        )
        self.savepoints = Savepoints(
            graph,
            identity,
            self.history,
            RefreshingWork(ports.savepoint_work or ports.work, self.refresh),
            ports.open_store,
            self.settings.savepoint_directory,
            lambda: f"{int(ports.random() * 2**48):012x}",
            lambda savepoint: self.checkpoints.execute(
                self.coordinator.request_savepoint(savepoint, self.clock.monotonic_ms())
            ),
            self.console.warning,
        )
        self.checkpoints = Checkpoints(
            graph,
            identity,
            incarnation,
            self.coordinator,
            self.job_directory,
            self.commits,
            self.history,
            self.savepoints,
            self.clock,
            self,
        )
        self.recovery = JobRecovery(self)
        self.ending = JobEnding(self)
        self.reporter = Reporter(graph, identity.job_id, self.lifecycle, self.history)
        self._messages = SlotMessages(self)
        self._processes: dict[str, None] = {}
        self.restore_point: RestorePoint | None = None
        self.rescales = Rescales(self, ports.slots)
        self.generations = Generations(self, configuration, ports.random)
        self.reporter.rescales = lambda: self.rescales.reports
        adaptive = self.settings.adaptive
        self.adaptive = None if adaptive is None else AdaptiveScheduler(self, ports.slots, adaptive)
        self.outcome: JobOutcome | None = None
        self.report: JobReport = self.reporter.build()

    # ---- driving ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.ending.started_ms = self.clock.monotonic_ms()
        self.execute(self.lifecycle.start(self.clock.monotonic_ms()))
        self.refresh()

    def handle(self, event: Event) -> None:
        match event:
            case MessageReceived(process, message):
                self._messages.on_message(process, message)
            case LinkLost(process, detail):
                self._processes.pop(process, None)
                self.execute(self.lifecycle.on_link_lost(process, detail, self.clock.monotonic_ms()))
            case CancelRequested(suspends):
                self.ending.suspends = suspends and not self.lifecycle.is_over
                self.execute(self.lifecycle.cancel(self.clock.monotonic_ms()))
            case CheckpointRequested():
                self.checkpoints.execute(self.coordinator.request(self.clock.monotonic_ms()))
            case SavepointRequested(order):
                self.savepoints.order(order)
            case RescaleRequested(order):
                self.rescales.order(order)
        self.refresh()

    def next_deadline_ms(self) -> float | None:
        """Return when `on_time` is to be called, at the latest; None: only after an event."""
        if self.outcome is not None:
            return None
        deadlines = [
            self.lifecycle.next_deadline_ms(),
            self.coordinator.next_deadline_ms(),
            self.job_directory.next_deadline_ms(),
            self.ending.next_deadline_ms(),
            self.commits.next_deadline_ms(),
            self.generations.next_deadline_ms(),
            self.rescales.next_deadline_ms(),
            None if self.adaptive is None else self.adaptive.next_deadline_ms(),
        ]
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float | None = None) -> None:
        """Advance the time to `now_ms` of the clock port; None: ask it."""
        if now_ms is None:
            now_ms = self.clock.monotonic_ms()
        if self.adaptive is not None:
            self.adaptive.look()
        self.execute(self.lifecycle.on_time(now_ms))
        self.checkpoints.execute(self.coordinator.on_time(now_ms))
        self.job_directory.on_time(now_ms)
        self.ending.on_time(now_ms)
        self.commits.on_time(now_ms)
        self.generations.on_time(now_ms)
        self.refresh()

    def refresh(self) -> None:
        if self.outcome is None:
            self.rescales.look()
            if self.adaptive is not None:
                self.adaptive.look()
        self.report = self.reporter.build()

    # ---- effects of the job's life ------------------------------------------------------------------------------

    def execute(self, decided: Sequence[effects.Effect]) -> None:
        links, now_ms = self.links, self.clock.monotonic_ms()
        for effect in decided:
            match effect:
                case effects.SubmitSlot(slot):
                    self.slots.submit(slot)
                case effects.ResubmitSlot(slot):
                    self.slots.resubmit(slot)
                case effects.ReleaseSlot(slot):
                    self.slots.release(slot)
                case effects.AssignSpare(process):
                    links.send(process, BecomeSpare())
                case effects.Dismiss(process, message):
                    links.send(process, Leave(message))
                    if not self.lifecycle.is_over:
                        self._close(process)
                case effects.CloseLink(process):
                    self._close(process)
                case effects.Prepare():
                    self.recovery.begin()
                case effects.Deploy(generation, members):
                    self.generations.deploy(generation, members)
                case effects.StartRestore(generation):
                    self.broadcast(Restore(generation))
                case effects.StartRun(generation):
                    self.generations.run(generation)
                case effects.CancelGeneration(generation, process):
                    links.send(process, Cancel(generation))
                case effects.GenerationEnded(_, cause):
                    self.generations.end(cause)
                case effects.Restarting():
                    self.recovery.supersede()
                    self.reporter.on_restarting(effect, now_ms, self.clock.wall_ms())
                    self.console.warning(effect.text())
                case effects.SlotsGone(state, error):
                    self.ending.begin(state, error)

    def _close(self, process: str) -> None:
        self._processes.pop(process, None)
        self.links.close(process)

    def connected(self, process: str) -> None:
        self._processes[process] = None

    def close_all_links(self) -> None:
        for process in list(self._processes):
            self._close(process)

    # ---- what the parts of the JobMaster ask of it (`checkpoints.Master`) ------------------------------------------

    def broadcast(self, message: Message) -> None:
        for member in self.lifecycle.roster.members():
            self.links.send(member.process, message)

    def fail(self, cause: FailureCause) -> None:
        self.execute(self.lifecycle.on_failure(None, cause, self.clock.monotonic_ms()))

    def abandon(self, error: str) -> None:
        self.ending.keep_everything = True
        self.execute(self.lifecycle.abandon(error, self.clock.monotonic_ms()))
        self.refresh()

    @property
    def is_draining(self) -> bool:
        return self.generations.is_draining

    @property
    def is_drained(self) -> bool:
        return self.generations.is_drained

    def adopt(self, graph: JobGraph) -> None:
        """Take the same job's graph, changed by a checkpoint or a rescale, before anything is deployed."""
        self.graph = self.checkpoints.graph = graph
        self.reporter.on_rescaled(graph)
        self.generations.plan()

    def prepared(self) -> None:
        """Continue: what the next generation restores is known."""
        self.execute(self.lifecycle.on_prepared(self.job_directory.fence, self.clock.monotonic_ms()))

    def checkpoint_completed(self, checkpoint: NewCheckpoint) -> None:
        self.restore_point = RestorePoint(checkpoint.metadata, checkpoint.data)
        self.lifecycle.restarts.on_checkpoint_completed()

    def checkpoint_published(self, checkpoint_id: int) -> None:
        self.rescales.on_published(checkpoint_id)

    def rescale_not_taken(self, reason: FailureReason, detail: str) -> None:
        self.rescales.on_not_taken(reason, detail)

    def final_checkpoint_reached(self) -> None:
        self.lifecycle.on_finishing()

    def committed_all(self) -> None:
        self.execute(self.lifecycle.finish(self.clock.monotonic_ms()))

    def _commit_failed(self, failed: CommitFailed) -> None:
        if self.lifecycle.is_over:
            return
        if self.lifecycle.is_finishing:
            self.ending.commit_failed(failed)
        else:
            self.ending.keep_everything |= not failed.restartable
            self.fail(FailureCause(failed.summary, failed.traceback, restartable=failed.restartable))

    def finished_with(self, outcome: JobOutcome) -> None:
        for line in self.reporter.rows_left_out():
            self.console.warning(line)
        self.outcome = outcome
        for answer_all in (self.savepoints.fail_all, self.rescales.end):
            answer_all("the job has ended" + (f": {outcome.error}" if outcome.error else ""))
