"""The JobMaster: the life of a job and its checkpoints, driven by events, carried out through ports.

It lives in one thread (or in the simulation's scheduler), never blocks, and knows no connection but by its process id.
Whatever may block (storage, commits) is handed to `BlockingWork`, which calls back into the same loop. The decisions
are made by `protocol.lifecycle` and `protocol.coordinator`; here stands only how their effects are carried out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.failures import describe
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.commits import CommitFailed, CommitQueue
from penstock.jobmaster.drain import JobDrain
from penstock.jobmaster.ending import JobEnding
from penstock.jobmaster.events import CancelRequested, CheckpointRequested, Event, LinkLost, MessageReceived
from penstock.jobmaster.history import CheckpointHistory
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.outcome import JobOutcome
from penstock.jobmaster.ports import BlockingWork, MasterPorts, RefreshingWork
from penstock.jobmaster.recovery import JobRecovery
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.restore import RestorePoint, refusal
from penstock.jobmaster.settings import JobSettings, restart_strategy
from penstock.jobmaster.sources import EnumeratorFailed, SplitDistribution
from penstock.jobmaster.store import JobStore
from penstock.monitoring.report import JobReport
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job import lifecycle_effects as effects
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.job.lifecycle_table import Phase
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import (
    Cancel,
    Connected,
    Decline,
    Deploy,
    DrainReport,
    Leave,
    Left,
    Message,
    Peer,
    PeerLost,
    Printed,
    ReachedEndOfData,
    Register,
    Restore,
    Restored,
    Run,
    SlotAck,
    SlotStatus,
    SplitsAssigned,
    SplitsRequested,
    StandBy,
    StoreRequest,
    SubtaskFailed,
)
from penstock.protocol.values.reasons import SubtaskFailureReason


class JobMaster:
    """`incarnation`: letters and digits, random per driver. Raises `OptionError` and `UnpicklableFunction`.

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
        self._random = ports.random
        self.lifecycle = Lifecycle(
            self.settings.lifecycle, restart_strategy(configuration), lambda: 2 * ports.random() - 1
        )
        self.coordinator = CheckpointCoordinator(
            self.settings.coordinator, vertex_names=[vertex.name for vertex in graph.vertices]
        )
        self.history = CheckpointHistory(self.settings.history_max, identity.directory)
        self.store = JobStore(
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
        self.checkpoints = Checkpoints(
            graph, identity, incarnation, self.coordinator, self.store, self.commits, self.history, self.clock, self
        )
        self.recovery = JobRecovery(self)
        self.ending = JobEnding(self)
        self._reporter = Reporter(graph, identity.job_id, self.lifecycle, self.history)
        self._configuration = configuration
        self._plan = self._planned()
        self._drain: JobDrain | None = None
        self._subtasks = sum(vertex.parallelism for vertex in graph.vertices)
        self._processes: dict[str, None] = {}
        self.restore_point: RestorePoint | None = None
        self.outcome: JobOutcome | None = None
        self.report: JobReport = self._reporter.build()

    def _planned(self) -> bytes:
        identity, checkpointing = self.identity, self.settings.checkpointing
        parts = (identity.job_id, self.graph, self._configuration, self.incarnation, identity.directory, checkpointing)
        return dumps(DeploymentPlan(*parts))

    # ---- driving ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.ending.started_ms = self.clock.monotonic_ms()
        self._live(self.lifecycle.start(self.clock.monotonic_ms()))
        self.refresh()

    def handle(self, event: Event) -> None:
        match event:
            case MessageReceived(process, message):
                self._on_message(process, message)
            case LinkLost(process, detail):
                self._processes.pop(process, None)
                self._live(self.lifecycle.on_link_lost(process, detail, self.clock.monotonic_ms()))
            case CancelRequested():
                self._live(self.lifecycle.cancel(self.clock.monotonic_ms()))
            case CheckpointRequested():
                self.checkpoints.carry_out(self.coordinator.request(self.clock.monotonic_ms()))
        self.refresh()

    def next_deadline_ms(self) -> float | None:
        """When `on_time` is to be called, at the latest; None: only after an event."""
        if self.outcome is not None:
            return None
        sources = self.checkpoints.sources
        deadlines = [
            self.lifecycle.next_deadline_ms(),
            self.coordinator.next_deadline_ms(),
            self.store.next_deadline_ms(),
            self.ending.next_deadline_ms(),
            self.commits.next_deadline_ms(),
            None if sources is None else sources.next_deadline_ms(),
        ]
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float | None = None) -> None:
        """`now_ms` of the clock port; None: ask it."""
        if now_ms is None:
            now_ms = self.clock.monotonic_ms()
        self._live(self.lifecycle.on_time(now_ms))
        self.checkpoints.carry_out(self.coordinator.on_time(now_ms))
        self.store.on_time(now_ms)
        self.ending.on_time(now_ms)
        self.commits.on_time(now_ms)
        sources = self.checkpoints.sources
        if sources is not None:
            self._guarded(lambda: sources.on_time(now_ms))
        self.refresh()

    def refresh(self) -> None:
        self.report = self._reporter.build()

    # ---- messages -----------------------------------------------------------------------------------------------

    def _on_message(self, process: str, message: Message) -> None:
        now_ms, life = self.clock.monotonic_ms(), self.lifecycle
        life.processes.on_heard(process, now_ms)
        played_slot = life.roster.plays(process)
        match message:
            case Register():
                self._register(message, now_ms)
            case Printed(subtask=subtask, lines=lines, is_error=is_error):
                for line in lines:
                    self.console.line(subtask, line, is_error)
            case StoreRequest():
                self.links.send(process, self.store.serve(message))
            case Left(generation):
                self._live(life.on_left(process, Generation(*generation), now_ms))
            case SlotAck():
                self.checkpoints.carry_out(self.coordinator.on_ack(message, now_ms))
            case Connected(generation) if played_slot is not None:
                self._live(life.on_connected(process, Generation(*generation), now_ms))
            case Restored(generation, slot, layers) if played_slot is not None:
                if Generation(*generation) == life.generation:
                    self._reporter.on_restored(slot, layers)
                self._live(life.on_restored(process, Generation(*generation), now_ms))
            case _ if played_slot is not None:
                self._on_message_of_generation(played_slot, message, now_ms)

    def _register(self, register: Register, now_ms: float) -> None:
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(register.python.split(".")[:2])
        if theirs != ours:
            self.abandon(
                f"slot {register.slot} on {register.host} runs Python {register.python}, the driver {ours}; functions "
                "can only be shipped between equal minor versions: set PYSPARK_PYTHON for the executors"
            )
        self._processes[register.process] = None
        self._live(self.lifecycle.on_register(register, now_ms))

    def _on_message_of_generation(self, played_slot: int, message: Any, now_ms: float) -> None:
        generation = self.lifecycle.generation
        if generation is None or message.generation != generation:
            if isinstance(message, SlotStatus):
                # Before it is deployed, a process names the slot that it was submitted for.
                self._reporter.on_memory(played_slot, message.rss_bytes)
            return
        match message:
            case SlotStatus(slot=slot, restoring=restoring):
                member = self.lifecycle.roster.member(slot)
                if member is not None:
                    self.lifecycle.processes.on_restoring(member.process, restoring)
                self._reporter.on_status(message, now_ms)
            case Decline():
                self.checkpoints.carry_out(self.coordinator.on_decline(message, now_ms))
            case SubtaskFailed():
                self._live(self.lifecycle.on_failure(generation, self._cause(message), now_ms))
            case PeerLost(slot=slot, peer=peer, detail=detail):
                summary = f"slot {slot} lost its connection to slot {peer}: {detail}"
                self._live(self.lifecycle.on_failure(generation, FailureCause(summary, slot_lost=True), now_ms))
            case DrainReport():
                if self._drain is not None:
                    self._drain.on_report(message)
                    self._reporter.on_draining(self._drain.is_over, now_ms)
            case ReachedEndOfData(subtask=subtask, status=status):
                if status is not None:
                    self._reporter.on_subtask(status, now_ms)
                self.checkpoints.carry_out(self.coordinator.on_end_of_data(SubtaskId(*subtask), now_ms))
            case SplitsRequested(subtask=subtask):
                sources = self.checkpoints.sources
                if sources is not None:
                    self._guarded(lambda: sources.on_requested(SubtaskId(*subtask), now_ms))

    def _cause(self, failed: SubtaskFailed) -> FailureCause:
        vertex = self.graph.vertices[failed.subtask.vertex]
        where = f"subtask {failed.subtask.subtask + 1}/{vertex.parallelism} of '{vertex.name}', slot {failed.slot}"
        point = self.restore_point
        is_damage = failed.reason is SubtaskFailureReason.DAMAGE
        if point is not None and is_damage and self.lifecycle.phase is Phase.RESTORING:
            self.ending.keep_everything = True
            detail = f"{failed.error} ({where})"
            if point.root is None:
                text = refusal(point.metadata, detail, self.store.retained_paths, self.identity.directory)
            else:
                text = f"{point.root}/chk-{point.metadata.checkpoint_id} cannot be restored: {detail}"
            return FailureCause(text, restartable=False)
        restartable = failed.reason is not SubtaskFailureReason.PERMANENT
        return FailureCause(f"{failed.error} ({where})", failed.traceback, restartable=restartable)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except EnumeratorFailed as error:
            self._fail_by_enumerator(error)

    def _fail_by_enumerator(self, error: EnumeratorFailed) -> None:
        self.fail(FailureCause(str(error), describe(error.__cause__ or error), restartable=error.restartable))

    # ---- effects of the job's life ------------------------------------------------------------------------------

    def _live(self, decided: Sequence[effects.Effect]) -> None:
        links, now_ms = self.links, self.clock.monotonic_ms()
        for effect in decided:
            match effect:
                case effects.SubmitSlot(slot):
                    self.slots.submit(slot)
                case effects.ResubmitSlot(slot):
                    self.slots.resubmit(slot)
                case effects.TellStandBy(process):
                    links.send(process, StandBy())
                case effects.Dismiss(process, message):
                    links.send(process, Leave(message))
                    if not self.lifecycle.is_over:
                        self._close(process)
                case effects.CloseLink(process):
                    self._close(process)
                case effects.Prepare():
                    self.recovery.begin()
                case effects.Deploy(generation, members):
                    self._deploy(generation, members)
                case effects.StartRestore(generation):
                    self.broadcast(Restore(generation))
                case effects.StartRun(generation):
                    self._run(generation, now_ms)
                case effects.CancelGeneration(generation, process):
                    links.send(process, Cancel(generation))
                case effects.GenerationEnded(_, cause):
                    self._reporter.on_generation_ended()
                    self.checkpoints.generation = None
                    self._drain = None
                    self.checkpoints.carry_out(self.coordinator.on_stopped(now_ms, detail=cause))
                case effects.Restarting():
                    self.recovery.supersede()
                    self._tell_restart(effect, now_ms)
                case effects.SlotsGone(state, error):
                    self.ending.begin(state, error)

    def _close(self, process: str) -> None:
        self._processes.pop(process, None)
        self.links.close(process)

    def close_all_links(self) -> None:
        for process in list(self._processes):
            self._close(process)

    def _deploy(self, generation: Generation, members: Sequence[Register]) -> None:
        self.checkpoints.generation = generation
        self._reporter.on_generation(generation.counter)
        restored = () if self.restore_point is None else self.restore_point.metadata.enumerators
        try:
            self.checkpoints.sources = SplitDistribution(self.graph, restored, self._assign)
        except EnumeratorFailed as error:
            self._fail_by_enumerator(error)
            return
        peers = [Peer(m.slot, m.host, m.data_port, m.process) for m in members]
        point = self.restore_point
        data, root = (None, None) if point is None else (point.data, point.root)
        for member in members:
            self.links.send(member.process, Deploy(generation, member.slot, peers, self._plan, data, root))

    def _assign(self, subtask: SubtaskId, splits: list[bytes], no_more: bool) -> None:
        generation, member = self.lifecycle.generation, self.lifecycle.roster.member(subtask.subtask)
        if generation is not None and member is not None:
            self.links.send(member.process, SplitsAssigned(generation, subtask, splits, no_more))

    def _run(self, generation: Generation, now_ms: float) -> None:
        self.broadcast(Run(generation))
        metadata = None if self.restore_point is None else self.restore_point.metadata
        self._drain = JobDrain(self.graph, metadata, generation, lambda: self.coordinator.pending_ids, self.broadcast)
        self._drain.begin()
        self._reporter.on_draining(self._drain.is_over, now_ms)
        restored = None if self.restore_point is None else self.restore_point.metadata.checkpoint_id
        self._reporter.recoveries.running(generation, now_ms, restored)
        self.store.plan_sweep(generation, now_ms)
        slots = frozenset(range(self.graph.slots))
        spread = self._random()
        self.checkpoints.carry_out(self.coordinator.on_running(generation, slots, self._subtasks, now_ms, spread))

    def _tell_restart(self, restarting: effects.Restarting, now_ms: float) -> None:
        cause = restarting.cause
        self._reporter.recoveries.failed(self._reporter.counter + 1, now_ms, self.clock.wall_ms(), cause.summary)
        when = "at once" if restarting.delay_ms <= 0 else f"in {restarting.delay_ms / 1000:.1f} s"
        what = "This is no failure of the job" if cause.planned else f"Failure {restarting.failures} of this job"
        self.console.warning(f"{cause.text()}\n{what}; it restarts {when}.")

    # ---- what the parts ask of the whole (`checkpoints.Master`) ----------------------------------------

    def broadcast(self, message: Message) -> None:
        for member in self.lifecycle.roster.members():
            self.links.send(member.process, message)

    def fail(self, cause: FailureCause) -> None:
        self._live(self.lifecycle.on_failure(None, cause, self.clock.monotonic_ms()))

    def abandon(self, error: str) -> None:
        self.ending.keep_everything = True
        self._live(self.lifecycle.abandon(error, self.clock.monotonic_ms()))
        self.refresh()

    @property
    def is_draining(self) -> bool:
        return self._drain is not None and not self._drain.is_over

    def adopt(self, graph: JobGraph) -> None:
        """The same job, with what it takes over from a checkpoint; before anything is deployed."""
        self.graph = self.checkpoints.graph = graph
        self._plan = self._planned()

    def prepared(self) -> None:
        """What the next generation restores is known."""
        self._live(self.lifecycle.on_prepared(self.store.fence, self.clock.monotonic_ms()))

    def checkpoint_completed(self, checkpoint: NewCheckpoint) -> None:
        self.restore_point = RestorePoint(checkpoint.metadata, checkpoint.data)
        self.lifecycle.on_checkpoint_completed()

    def final_checkpoint_reached(self) -> None:
        self.lifecycle.on_finishing()

    def committed_all(self) -> None:
        self._live(self.lifecycle.finish(self.clock.monotonic_ms()))

    def _commit_failed(self, failed: CommitFailed) -> None:
        if self.lifecycle.is_over:
            return
        if self.lifecycle.is_finishing:
            self.ending.commit_failed(failed)
        else:
            self.ending.keep_everything |= not failed.restartable
            self.fail(FailureCause(failed.summary, failed.traceback, restartable=failed.restartable))

    def finished_with(self, outcome: JobOutcome) -> None:
        for line in self._reporter.rows_left_out():
            self.console.warning(line)
        self.outcome = outcome
