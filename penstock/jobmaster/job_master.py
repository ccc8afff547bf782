"""Runs the JobMaster: the life of a job and its checkpoints, driven by events, executed through ports.

It lives in one thread (or in the simulation's scheduler), never blocks, and knows connections only by process ids.
Whatever may block (storage, commits) is handed to `BlockingWork`, which calls back into the same loop.
`protocol.driver` makes the decisions; this module executes their effects.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.common.configuration import Configuration
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.commits import Commits
from penstock.jobmaster.current_job import CurrentJob, Driver, JobSettings, restart_strategy
from penstock.jobmaster.generations import FinalPositions, Generations, RunningGeneration
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.job_ending import JobEnding
from penstock.jobmaster.job_recovery import START_ELSEWHERE, JobRecovery, damage_text, nothing_to_resume
from penstock.jobmaster.ports import (
    CancelRequested,
    CheckpointRequested,
    Event,
    JobOutcome,
    LinkLost,
    MasterPorts,
    MessageReceived,
    ProcessLinks,
    RefreshingWork,
    RescaleRequested,
    SavepointRequested,
)
from penstock.jobmaster.reports import CheckpointHistory, Reporter
from penstock.jobmaster.rescales import AdaptiveScheduler, Rescales
from penstock.jobmaster.savepoints import Savepoints
from penstock.monitoring.report import JobReport
from penstock.protocol.driver import adaptive_scaling, commit_order, ending, recovery, rescaling
from penstock.protocol.driver import driver_effects as effects
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.driver_machine import DriverMachine, Effect
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.log.publication import to_give_up_rows
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import (
    BecomeSpare,
    Cancel,
    Connected,
    Decline,
    DrainReport,
    Leave,
    Left,
    Message,
    PeerLost,
    Printed,
    ReachedEndOfData,
    Register,
    Restore,
    Restored,
    SlotAck,
    SlotStatus,
    SplitsRequested,
    StoreRequest,
    SubtaskFailed,
    WatermarkReport,
)
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.storage.layout import METADATA_NAME


class SlotMessages:
    """Handles messages of slots. Those of an earlier generation are ignored, except for memory."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        links: ProcessLinks,
        generations: Generations,
        job_directory: JobDirectory,
        reporter: Reporter,
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._links = links
        self._generations = generations
        self._job_directory = job_directory
        self._reporter = reporter
        self._ports = ports

    def on_message(self, process: str, message: Message) -> None:
        life, handle = self._driver.lifecycle, self._driver.handle
        handle(events.Heard(process))
        played_slot = life.roster.plays(process)
        match message:
            case Register():
                self._register(message)
            case Printed(subtask=subtask, lines=lines, is_error=is_error):
                for line in lines:
                    self._ports.console.line(subtask, line, is_error)
            case StoreRequest():
                self._ports.links.send(process, self._job_directory.serve(message))
            case Left(generation):
                handle(events.SlotLeft(process, Generation(*generation)))
            case SlotAck():
                self._reporter.checkpoints.on_ack(message, self._ports.clock.monotonic_ms())
                handle(message)
            case Connected(generation) if played_slot is not None:
                handle(events.SlotConnected(process, Generation(*generation)))
            case Restored(generation, slot, layers) if played_slot is not None:
                if Generation(*generation) == life.generation:
                    self._reporter.on_restored(slot, layers)
                handle(events.SlotRestored(process, Generation(*generation)))
            case _ if played_slot is not None:
                self._on_message_of_generation(played_slot, message, self._ports.clock.monotonic_ms())

    def _register(self, register: Register) -> None:
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(register.python.split(".")[:2])
        if theirs != ours:
            self._driver.abandon(
                f"slot {register.slot} on {register.host} runs Python {register.python}, the driver {ours}; functions "
                "can only be shipped between equal minor versions: set PYSPARK_PYTHON for the executors"
            )
        self._links.registered(register.process)
        self._driver.handle(events.Registered(register))

    def _on_message_of_generation(self, played_slot: int, message: Any, now_ms: float) -> None:
        lifecycle, handle = self._driver.lifecycle, self._driver.handle
        generation = lifecycle.generation
        if generation is None or message.generation != generation:
            if isinstance(message, SlotStatus):
                # Before it is deployed, a process names the slot that it was submitted for.
                self._reporter.on_memory(played_slot, message.rss_bytes)
            return
        match message:
            case SlotStatus(slot=slot, restoring=restoring):
                member = lifecycle.roster.member(slot)
                if member is not None:
                    handle(events.Restoring(member.process, restoring))
                self._reporter.on_status(message, now_ms)
            case Decline():
                handle(message)
            case SubtaskFailed():
                handle(events.Failed(self._cause(message), generation))
            case PeerLost(slot=slot, peer=peer, detail=detail):
                summary = f"slot {slot} lost its connection to slot {peer}: {detail}"
                cause = FailureCause(summary, slot_lost=True, lost_peer=peer)
                handle(events.Failed(cause, generation))
            case DrainReport():
                self._generations.on_drain_report(message, now_ms)
            case ReachedEndOfData(subtask=subtask, status=status):
                if status is not None:
                    self._reporter.on_subtask(status, played_slot, now_ms)
                self._generations.on_source_ended(SubtaskId(*subtask))
                handle(events.EndOfData(SubtaskId(*subtask)))
            case WatermarkReport(subtask=subtask, watermark_ms=watermark_ms):
                self._generations.on_watermark(SubtaskId(*subtask), watermark_ms)
            case SplitsRequested(subtask=subtask):
                self._generations.on_splits_requested(SubtaskId(*subtask), now_ms)

    def _cause(self, failed: SubtaskFailed) -> FailureCause:
        point = self._job.restore_point
        vertex = self._job.graph.vertices[failed.subtask.vertex]
        where = f"subtask {failed.subtask.subtask + 1}/{vertex.parallelism} of '{vertex.name}', slot {failed.slot}"
        is_restoring = self._driver.lifecycle.phase is Phase.RESTORING
        is_damage = failed.reason is SubtaskFailureReason.DAMAGED_RANGE or (
            failed.reason is SubtaskFailureReason.DAMAGE and is_restoring
        )
        if point is not None and is_damage:
            detail = f"{failed.error} ({where})"
            if point.root is None:
                directory = self._job.identity.directory
                text = damage_text(point.metadata, detail, self._job_directory.retained_paths, directory)
            else:
                where = (
                    point.root if point.path == METADATA_NAME else f"{point.root}/chk-{point.metadata.checkpoint_id}"
                )
                without_rows = to_give_up_rows(point.metadata.checkpoint_id, detail)
                text = f"{where} cannot be restored: {detail}. {without_rows}{START_ELSEWHERE}"
            return FailureCause(text, restartable=False, keeps_everything=True)
        restartable = failed.reason is not SubtaskFailureReason.PERMANENT
        return FailureCause(f"{failed.error} ({where})", failed.traceback, restartable=restartable)


class JobMaster:
    """Runs one job. `incarnation`: letters and digits, random per driver. Raises `OptionError` and
    `UnpicklableFunction`.

    The owner calls `start`, then `handle` for each event and `on_time` at `next_deadline_ms`, until there is an
    `outcome`. `report` may be read from any thread.
    """

    def __init__(
        self, graph: JobGraph, configuration: Configuration, identity: JobIdentity, incarnation: str, ports: MasterPorts
    ) -> None:
        settings = JobSettings.from_configuration(configuration, graph.slots)
        self.job = job = CurrentJob(identity, incarnation, configuration, settings, graph)
        commit_work = RefreshingWork(ports.commit_work or ports.work, self.refresh)
        savepoint_work = RefreshingWork(ports.savepoint_work or ports.work, self.refresh)
        source_work = RefreshingWork(ports.source_work or ports.work, self.refresh)
        ports = replace(ports, work=RefreshingWork(ports.work, self.refresh))
        self._ports = ports
        self._clock = ports.clock
        self.machine = machine = DriverMachine(
            settings.lifecycle,
            settings.coordinator,
            restart_strategy(configuration),
            lambda: 2 * ports.random() - 1,
            [vertex.name for vertex in graph.vertices],
            has_log=settings.checkpointing,
            start=None if identity.start_from is None else identity.start_from.path,
            adaptive=settings.adaptive,
            runs_already=lambda rescale: self.rescales.runs_already(rescale),
        )
        self.lifecycle, self.coordinator = machine.lifecycle, machine.coordinator
        self.history = CheckpointHistory(settings.history_max, identity.directory)
        self.job_directory = JobDirectory(job, machine, ports)
        self._driver = driver = Driver(machine, ports.clock, self._execute)
        self._links = ProcessLinks(ports.links)
        self.running = RunningGeneration(self.lifecycle.roster, ports.links)
        self.commits = Commits(graph, driver, commit_work, ports.console.warning)
        self.savepoints = self._new_savepoints(savepoint_work)
        self.rescales = Rescales(job, driver, self.running, self._adopt, ports)
        positions = FinalPositions(job, source_work, ports)
        self._checkpoints = Checkpoints(
            job,
            driver,
            self.running,
            self.job_directory,
            self.commits,
            self.history,
            self.savepoints,
            positions,
            ports,
        )
        self._reporter = Reporter(graph, identity.job_id, self.lifecycle, self.history)
        self._reporter.rescales = lambda: self.rescales.reports
        self._generations = Generations(job, driver, self.running, self._reporter, ports, source_work)
        self._recovery = JobRecovery(
            job, driver, self.job_directory, self.commits, self.rescales, self._adopt, positions, ports
        )
        self._ending = JobEnding(job, driver, self.job_directory, self.commits, self._finished_with, ports)
        self._adaptive = AdaptiveScheduler(job, driver, self.rescales, self._adopt, ports)
        self._messages = SlotMessages(
            job,
            driver,
            self._links,
            self._generations,
            self.job_directory,
            self._reporter,
            ports,
        )
        self.outcome: JobOutcome | None = None
        self.report: JobReport = self._reporter.build()
        self._answers: deque[Callable[[], None]] = deque()

    def _new_savepoints(self, work: RefreshingWork) -> Savepoints:
        job, ports = self.job, self._ports
        return Savepoints(
            job.graph,
            job.identity,
            self.history,
            work,
            ports.clock,
            job.settings.coordinator.timeout_ms,
            ports.open_store,
            job.settings.savepoint_directory,
            lambda: f"{int(ports.random() * 2**48):012x}",
            lambda savepoint: self._driver.handle(events.SavepointAsked(savepoint)),
            ports.console.warning,
            job.settings.is_batch,
        )

    # ---- driving ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._ending.started_ms = self._clock.monotonic_ms()
        self._driver.handle(events.Started())
        self.refresh()

    def handle(self, event: Event) -> None:
        match event:
            case MessageReceived(process, message):
                self._messages.on_message(process, message)
            case LinkLost(process, detail):
                self._links.lost(process)
                self._driver.handle(events.LinkLost(process, detail))
            case CancelRequested(suspends):
                self._driver.handle(events.Cancelled(suspends))
            case CheckpointRequested(answer):
                self._checkpoints.request(self._after_report(answer))
            case SavepointRequested(order):
                self.savepoints.order(replace(order, answer=self._after_report(order.answer)))
            case RescaleRequested(order):
                self.rescales.order(replace(order, answer=self._after_report(order.answer)))
        self.refresh()

    def next_deadline_ms(self) -> float | None:
        """Return the deadline of the next call of `on_time`; None: only after an event."""
        if self.outcome is not None:
            return None
        deadlines = [
            self.machine.next_deadline_ms(),
            self.job_directory.next_deadline_ms(),
            self._generations.next_deadline_ms(),
            self.savepoints.next_deadline_ms(),
        ]
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float | None = None) -> None:
        """Advance the time to `now_ms` of the clock port; None: ask it."""
        if now_ms is None:
            now_ms = self._clock.monotonic_ms()
        if self.job.settings.adaptive is not None:
            # Without this: the time is over for slots that nobody waits for any more.
            self.rescales.look()
        self._driver.handle(events.TimePassed(self.savepoints.progress_ms), now_ms)
        self.job_directory.on_time(now_ms)
        self.savepoints.on_time(now_ms)
        self._generations.on_time(now_ms)
        self.refresh()

    def refresh(self) -> None:
        if self.outcome is None:
            self.rescales.look()
        self.report = self._reporter.build()
        while self._answers:
            self._answers.popleft()()

    def _after_report(self, answer: Callable[[Any], None]) -> Callable[[Any], None]:
        """Delay an answer until the report is renewed. Without this: the caller has the directory of a savepoint, and
        the report shows it as in progress.
        """
        return lambda result: self._answers.append(partial(answer, result))

    # ---- effects: the only match over them ----------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        """Execute one effect of the machine: here those of the job's life."""
        slots, links, now_ms = self._ports.slots, self._ports.links, self._clock.monotonic_ms()
        match effect:
            case effects.SubmitSlot(slot):
                slots.submit(slot)
            case effects.ResubmitSlot(slot):
                slots.resubmit(slot)
            case effects.ReleaseSlot(slot):
                slots.release(slot)
            case effects.AssignSpare(process):
                links.send(process, BecomeSpare())
            case effects.Dismiss(process, message):
                links.send(process, Leave(message))
                if not self.lifecycle.is_over:
                    self._links.close(process)
            case effects.CloseLink(process):
                self._links.close(process)
            case effects.Deploy(generation, members):
                self._generations.deploy(generation, members)
            case effects.StartRestore(generation):
                self.running.broadcast(Restore(generation))
            case effects.StartRun(generation):
                self.job_directory.plan_sweep(generation, now_ms)
                self._generations.run(generation)
            case effects.CancelGeneration(generation, process):
                links.send(process, Cancel(generation))
            case effects.GenerationEnded():
                self._generations.end()
            case effects.Restarting():
                self._reporter.on_restarting(effect, now_ms, self._clock.wall_ms())
                self._ports.console.warning(effect.text())
            case _:
                self._execute_for_checkpoint(effect)

    def _execute_for_checkpoint(self, effect: Effect) -> None:
        checkpoints = self._checkpoints
        match effect:
            case effects.TriggerCheckpoint():
                checkpoints.trigger(effect)
            case effects.PublishCheckpoint():
                checkpoints.publish(effect)
            case effects.FollowPublication(step, checkpoint_id):
                checkpoints.follow(step, checkpoint_id)
            case effects.CheckpointAborted():
                checkpoints.abort(effect)
            case effects.SavepointRefused(savepoint, reason):
                checkpoints.refuse_savepoint(savepoint, reason)
            case effects.DrainSources():
                checkpoints.drain_sources()
            case effects.StillDraining():
                checkpoints.warn_of_draining(effect)
            case effects.DiscardSegments(paths, directory):
                checkpoints.discard(paths, directory)
            case effects.StillPublishing():
                checkpoints.warn_of_publishing(effect)
            case _:
                self._execute_for_recovery(effect)

    def _execute_for_recovery(self, effect: Effect) -> None:
        found = self._recovery
        match effect:
            case recovery.OpenDirectory():
                found.open()
            case recovery.TakeOverLog():
                found.take_over()
            case recovery.ReadStart(path):
                found.read(path)
            case recovery.FitCheckpoint():
                found.fit()
            case recovery.Claim():
                found.claim()
            case recovery.QueueCommits(is_last):
                found.queue_commits(is_last)
            case recovery.AwaitPublications(attempt):
                found.await_publications(attempt)
            case recovery.CheckFiles(attempt):
                found.check_files(attempt)
            case recovery.Warn(text):
                self._ports.console.warning(text)
            case recovery.AbandonEnded(state):
                self._driver.abandon(nothing_to_resume(self.job.identity.job_id, state))
            case _:
                self._execute_for_slots(effect)

    def _execute_for_slots(self, effect: Effect) -> None:
        rescales = self.rescales
        match effect:
            case rescaling.RestartWith(rescale):
                rescales.restart(rescale)
            case rescaling.Rescaled():
                rescales.done(effect)
            case rescaling.RunsAlready(rescale):
                rescales.runs(rescale)
            case rescaling.NotRescaled(rescale, why):
                rescales.give_up(rescale, why)
            case adaptive_scaling.Lower(slots, waited_ms):
                self._adaptive.lower(slots, waited_ms)
            case adaptive_scaling.Lowered():
                self._adaptive.lowered(effect)
            case adaptive_scaling.Raise(slots):
                self._adaptive.raise_to(slots)
            case _:
                self._execute_for_commits_and_end(effect)

    def _execute_for_commits_and_end(self, effect: Effect) -> None:
        commits, end, warn = self.commits, self._ending, self._ports.console.warning
        match effect:
            case commit_order.Commit(committables):
                commits.commit(committables)
            case commit_order.Confirm(batch):
                commits.confirm(batch)
            case commit_order.WarnOfDelay():
                commits.warn_of_delay(effect)
            case commit_order.FailForDelay():
                commits.fail_for_delay(effect)
            case ending.ReleaseSlots():
                self._ports.slots.cancel_all()
                self._links.close_all()
            case ending.AwaitPublications():
                end.await_publications()
            case ending.AwaitCommits():
                end.report_holdings()
            case ending.CheckLog():
                end.check_log()
            case ending.EndLog(state, keeps):
                end.end_log(state, keeps)
            case ending.DeleteAndSweep():
                end.delete_and_sweep()
            case ending.LookForNewest():
                end.look_for_newest()
            case ending.WarnOfRefusal(cause):
                warn(f"{cause.summary}; trying again")
            case ending.GiveUpFinalCommits(attempts, cause):
                end.give_up(attempts, cause)
            case ending.WarnOfLoss(detail):
                warn(detail)
            case ending.WarnOfSilence():
                end.warn_of_silence()
            case ending.Finish():
                end.finish(effect)
            case _:
                raise AssertionError(f"nothing executes {type(effect).__name__}")

    # ---- what the parts call, and the owner -----------------------------------------------------------------------

    def abandon(self, error: str) -> None:
        """End the job as FAILED, and delete nothing."""
        self._driver.abandon(error)
        self.refresh()

    def _adopt(self, graph: JobGraph) -> None:
        """Take the same job's graph, changed by a checkpoint or a rescale, before anything is deployed."""
        self.job.graph = graph
        self._reporter.on_rescaled(graph)
        self._generations.plan()

    def _finished_with(self, outcome: JobOutcome) -> None:
        for line in self._reporter.rows_left_out():
            self._ports.console.warning(line)
        self.outcome = outcome
        for answer_all in (self.savepoints.fail_all, self.rescales.end):
            answer_all("the job has ended" + (f": {outcome.error}" if outcome.error else ""))
