"""Runs the JobMaster: the life of a job and its checkpoints, driven by events, executed through ports.

It lives in one thread (or in the simulation's scheduler), never blocks, and knows connections only by process ids.
Whatever may block (storage, commits) is handed to `BlockingWork`, which calls back into the same loop.
`protocol.driver` makes the decisions; this module executes their effects.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.common.configuration import Configuration
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.adaptive_scheduler import AdaptiveScheduler
from penstock.jobmaster.checkpoints import Checkpoints
from penstock.jobmaster.commits import CommitFailed, CommitQueue
from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.driver import Driver
from penstock.jobmaster.events import (
    CancelRequested,
    CheckpointRequested,
    Event,
    LinkLost,
    MessageReceived,
    RescaleRequested,
    SavepointRequested,
)
from penstock.jobmaster.final_positions import FinalPositions
from penstock.jobmaster.generations import Generations
from penstock.jobmaster.history import CheckpointHistory
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.job_ending import JobEnding
from penstock.jobmaster.job_recovery import JobRecovery
from penstock.jobmaster.job_settings import JobSettings, restart_strategy
from penstock.jobmaster.master_ports import MasterPorts, RefreshingWork
from penstock.jobmaster.outcome import JobOutcome
from penstock.jobmaster.process_links import ProcessLinks
from penstock.jobmaster.reports import Reporter
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.running_generation import RunningGeneration
from penstock.jobmaster.savepoints import Savepoints
from penstock.jobmaster.slot_messages import SlotMessages
from penstock.monitoring.report import JobReport
from penstock.protocol.driver import driver_effects as effects
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.driver_machine import DriverMachine
from penstock.protocol.values.messages import (
    BecomeSpare,
    Cancel,
    Leave,
    Restore,
)


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
        machine = DriverMachine(
            settings.lifecycle,
            settings.coordinator,
            restart_strategy(configuration),
            lambda: 2 * ports.random() - 1,
            [vertex.name for vertex in graph.vertices],
        )
        self.lifecycle, self.coordinator = machine.lifecycle, machine.coordinator
        self.history = CheckpointHistory(settings.history_max, identity.directory)
        self.job_directory = JobDirectory(job, ports)
        self._driver = driver = Driver(machine, ports.clock, self.job_directory, self._execute)
        self._links = ProcessLinks(ports.links)
        self.running = RunningGeneration(self.lifecycle.roster, ports.links)
        self.commits = CommitQueue(
            graph,
            commit_work,
            ports.clock,
            settings.coordinator.timeout_ms,
            self._commit_failed,
            ports.console.warning,
        )
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
            self.rescales,
            positions,
            ports,
        )
        self._reporter = Reporter(graph, identity.job_id, self.lifecycle, self.history)
        self._reporter.rescales = lambda: self.rescales.reports
        self._generations = Generations(job, driver, self.running, self._reporter, ports, source_work)
        self._recovery = JobRecovery(
            job, driver, self.job_directory, self.commits, self.rescales, self._adopt, positions, ports
        )
        self._ending = JobEnding(job, driver, self._links, self.job_directory, self.commits, self._finished_with, ports)
        self._adaptive = None
        if settings.adaptive is not None:
            self._adaptive = AdaptiveScheduler(job, driver, self.rescales, self._adopt, settings.adaptive, ports)
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
                self._ending.on_cancelled(suspends)
                self._driver.handle(events.Cancelled())
            case CheckpointRequested(answer):
                self._checkpoints.request(answer)
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
            self._driver.machine.next_deadline_ms(),
            self.job_directory.next_deadline_ms(),
            self._ending.next_deadline_ms(),
            self.commits.next_deadline_ms(),
            self._generations.next_deadline_ms(),
            self.rescales.next_deadline_ms(),
            self.savepoints.next_deadline_ms(),
            None if self._adaptive is None else self._adaptive.next_deadline_ms(),
        ]
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float | None = None) -> None:
        """Advance the time to `now_ms` of the clock port; None: ask it."""
        if now_ms is None:
            now_ms = self._clock.monotonic_ms()
        if self._adaptive is not None:
            self._adaptive.look()
        self._driver.handle(events.TimePassed(self.savepoints.progress_ms), now_ms)
        self.job_directory.on_time(now_ms)
        self._ending.on_time(now_ms)
        self.commits.on_time(now_ms)
        self.savepoints.on_time(now_ms)
        self._generations.on_time(now_ms)
        self.refresh()

    def refresh(self) -> None:
        if self.outcome is None:
            self.rescales.look()
            if self._adaptive is not None:
                self._adaptive.look()
        self.report = self._reporter.build()

    # ---- effects of the job's life ------------------------------------------------------------------------------

    def _execute(self, effect: effects.Effect) -> None:
        """Execute one effect of the machine."""
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
            case effects.Prepare():
                self._recovery.begin()
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
                self._recovery.supersede()
                self._reporter.on_restarting(effect, now_ms, self._clock.wall_ms())
                self._ports.console.warning(effect.text())
            case effects.SlotsGone(state, error):
                self._ending.begin(state, error)
            case _:
                self._checkpoints.execute(effect)

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

    def _commit_failed(self, failed: CommitFailed) -> None:
        if self.lifecycle.is_over:
            return
        if self.lifecycle.is_finishing:
            self._ending.commit_failed(failed)
        else:
            self.job_directory.keep_everything |= not failed.restartable
            self._driver.fail(FailureCause(failed.summary, failed.traceback, restartable=failed.restartable))

    def _finished_with(self, outcome: JobOutcome) -> None:
        for line in self._reporter.rows_left_out():
            self._ports.console.warning(line)
        self.outcome = outcome
        for answer_all in (self.savepoints.fail_all, self.rescales.end):
            answer_all("the job has ended" + (f": {outcome.error}" if outcome.error else ""))
