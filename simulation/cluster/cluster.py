"""Runs one plan: a workload, drivers and their slots, faults, and the checkers that watch."""

from __future__ import annotations

import re
from functools import partial

from penstock.common.options import CheckpointingOptions, NetworkOptions
from penstock.jobmaster.ports import JobOutcome
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.metadata import Metadata
from penstock.protocol.values.reasons import FailureReason
from simulation.checkers.durations import DurationChecker
from simulation.checkers.output_checks import check_cancelled, check_end
from simulation.cluster.process_watch import ProcessWatch
from simulation.cluster.user_code_hooks import UserCodeHooks
from simulation.faults.fault_injector import FaultInjector
from simulation.faults.fault_plan import NO_STORE_FAULTS, FaultPlan
from simulation.faults.user_orders import Patience
from simulation.jobs.output import Output
from simulation.jobs.workload import Workload
from simulation.processes.control_network import ControlNetwork
from simulation.processes.data_network import DataNetwork
from simulation.processes.driver_process import Driver, DriverEnvironment, DriverProcess, Statistics
from simulation.processes.present_job import JOB_ID, PresentJob
from simulation.processes.slot_process import SlotKeeper
from simulation.world import world_hooks
from simulation.world.faulty_store import FaultyStore, SharedObjects, StoreFaults
from simulation.world.pace import Bounds, Pace
from simulation.world.places import PlacePlan, Places
from simulation.world.trace import EVERYONE, About
from simulation.world.world import Process, World

ROOM_FOR_A_ROW_BYTES = 100_000
"""No row of a simulated job becomes more than that."""
_DOES_NOT_FIT = "the checkpoint does not fit the program"
_PROBE = re.compile(r"probe/\w+")  # its name is random, and means nothing


class Cluster:
    """Runs drivers, one after the other or several at once, until the job of the plan is over.

    `job` is the job that they run, `watch` observes their processes, and `fault_injector` disturbs them.
    """

    def __init__(self, world: World, workload: Workload, faults: FaultPlan, pace: Pace, bounds: Bounds) -> None:
        self.world = world
        self.workload = workload
        self.faults = faults
        self.pace = pace
        world.upload_ms, world.limits = pace.upload_ms, pace.scale
        self.bounds = bounds
        self.shared = SharedObjects()
        self.output = Output()
        self.network = DataNetwork(world, pace.data_ms, pace.bytes_share)
        self.statistics = Statistics()
        self.drivers: list[Driver] = []
        self.job = PresentJob(world, workload, self.shared, self.drivers)
        self.places: PlacePlan | None = None
        """The number of places that there are for the tasks of each driver."""
        self.is_over = False
        self.is_left_unswept = self.is_cancelled = False
        self._is_undone = False
        """True if the next driver runs the graph before one that was refused."""
        self._next_store_fault: StoreFaults | None = None
        self.fault_injector = FaultInjector(self, world, faults)
        self.watch = ProcessWatch(world, self.job, self.drivers, self.statistics, self.fault_injector)
        self.hooks = UserCodeHooks(world, self.job, self.output, self.shared, self.watch, self.fault_injector)
        self.patience = Patience(self._resume_with_timeout)
        if self.job.log is not None:
            self.job.log.told = self._on_published
            self.shared.on_created = self.watch.on_created
            self.shared.on_deleted = self.job.on_deleted

    def bound_durations(self) -> None:
        """Limit the time that checkpoints take, if nothing goes wrong and no snapshot has to wait for the rest of a row
        that waits for room.
        """
        has_room = self.workload.configuration.get(NetworkOptions.OVERDRAFT_BYTES_MAX) >= ROOM_FOR_A_ROW_BYTES
        if self.job.has_checkpoints and self.faults.is_calm and has_room and not self.pace.bytes_share:
            pace, store_ms = self.pace, self.faults.store.late_ms
            durations = DurationChecker(self.world, self.workload.graph, pace.step_ms, pace.control_ms, store_ms)
            self.watch.durations = durations
            self.network.measured = durations.measured
            self.world.is_parallel = True

    # ---- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        world_hooks.enter(self.hooks)
        try:
            self._run()
        finally:
            world_hooks.enter(None)
            self.world.disk.close()
        if not self.world.violations:
            self._check_end()

    def _check_end(self) -> None:
        restarts = sum(d.host.master.lifecycle.restarts.count for d in self.drivers if d.host.has_begun)
        # A restore that the store refuses is a failure of its own, however many there are.
        faults = len(self.statistics.faults) + self._moves()
        if not self.shared.failures and not self.world.observer and restarts > 3 * faults:
            self.world.violate(f"{restarts} restarts after {faults} faults")
        if self.is_cancelled:
            check_cancelled(self.world, self.output, self.workload, None if self.is_left_unswept else self.job.log)
        else:
            check_end(self.world, self.output, self.workload, self.job.log, is_swept=not self.is_left_unswept)

    def _moves(self) -> int:
        """Return the number of restarts that the places for slots may cause. Each change of them may end a task of
        every slot, or give one back. An adaptive job does not wait for the processes of all slots, and grows as they
        come.
        """
        changes = 0 if self.places is None else len(self.places.changes)
        return (changes + self.workload.is_adaptive) * self.workload.graph.slots

    def _run(self) -> None:
        self.start_driver()
        world, bounds = self.world, self.bounds
        step = world.step
        while not (self.is_over and self._all_drivers_have_ended()) and not world.violations:
            if not step():
                world.violate("nothing will ever happen again, and the job has not ended")
            elif world.events > bounds.events_max or world.now_ms > bounds.ms_max:
                world.violate(
                    f"no end after {world.events} events and {world.now_ms / 1000:.0f} s: {self._where_it_hangs()}"
                )

    def _all_drivers_have_ended(self) -> bool:
        """Return whether all have ended. One that has slept through the end wakes up, and finds that it has lost the
        job.
        """
        return not any(d.process.is_alive and not d.host.has_ended for d in self.drivers)

    def _where_it_hangs(self) -> str:
        if not self.drivers:
            return "no driver"
        late = [d for d in self.drivers if d.process.is_alive and not d.host.has_ended]
        driver = (late or self.drivers)[-1]
        life = driver.host.master.lifecycle
        return f"{driver.process.name}: {life.phase}, {life.state}, generation {life.generation}"

    def start_new_job(self, job_id: str, start_from: str) -> Driver:
        """Start a new job from a checkpoint or savepoint. The present one is left alone from here on."""
        self.job.start_from(start_from, job_id)
        self.output.confirmed.clear()  # it may start from an older checkpoint, whose output is committed again
        return self.start_driver()

    def start_driver(self) -> Driver:
        """Start the first driver, or one that resumes the job's directory."""
        world, pace, faults = self.world, self.pace, self.faults
        number = len(self.drivers)
        process = Process(f"d{number}", world.random.randint(-(10**9), 10**9))
        control = ControlNetwork(world, process, pace.control_ms, pace.control_as_bytes)
        control.on_sent = self.watch.on_sent
        control.on_told = partial(self.watch.on_told, number)
        slots = max(v.parallelism for v in self.workload.graph.vertices)
        places = Places(world, self.places, slots)
        keeper = SlotKeeper(
            world,
            control,
            self.network,
            self._store,
            process.name,
            pace.step_ms,
            pace.slot_start_ms,
            faults.speculation_share,
            faults.retry_share,
            places,
        )
        if number and world.chance() < faults.rescale_share and not self._is_undone:
            self.rescale()
        self._is_undone = False
        configuration = self.workload.configuration.copy()
        if self.job.log is not None and self.job.log.entries:
            configuration.set("execution.state-recovery.path", self.job.directory)
            configuration.remove_config("pipeline.job-id")
        elif self.job.has_checkpoints and not configuration.contains_key("pipeline.job-id"):
            configuration.set("pipeline.job-id", JOB_ID)
        around = DriverEnvironment(control, keeper, places, self._store, pace.work_ms)
        host = DriverProcess(
            world,
            process,
            self.workload.graph,
            configuration,
            f"{world.random.getrandbits(32):08x}",
            around,
            self._on_driver_ended,
            self._on_driver_raised,
            self._on_aborted,
        )
        self.workload.runs(host.incarnation)
        if self.job.log is not None:
            self.job.log.candidates[host.incarnation] = [self.workload.graph]
        driver = Driver(process, host, control, keeper)
        self.drivers.append(driver)
        self.statistics.drivers += 1
        world.after(0.0, process, host.start)
        self.network.edges = [(edge.source, edge.target) for edge in self.workload.graph.edges]
        world.tell(
            process.name, f"starts, after {len(self.job.log.entries) if self.job.log else 0} log entries", EVERYONE
        )
        return driver

    def rescale(self) -> bool:
        """Let the next driver run operators at other parallelisms. Returns whether any changes."""
        changed = self.workload.rescale(self.world.random)
        self.statistics.rescales += changed
        self.world.tell("user", f"rescaled to {self.workload.parallelisms}", EVERYONE)
        return changed

    def _store(self, process: Process, directory: str) -> FaultyStore:
        if self.world.observer is not None:
            self.world.observer("open", process, directory)
        return FaultyStore(self.world, process, self.shared, directory, self._faults_of_call)

    def _faults_of_call(self) -> StoreFaults:
        once, self._next_store_fault = self._next_store_fault, None
        return self.fault_injector.store_faults if once is None else once

    def fail_next_store_call(self, is_carried_out: bool = False) -> None:
        self._next_store_fault = StoreFaults(reply_lost=1.0) if is_carried_out else StoreFaults(refused=1.0)

    # ---- reports -------------------------------------------------------------------------------------

    @property
    def _is_calm(self) -> bool:
        """Return whether nothing goes wrong in this run: no faults, no scenario, and no task that loses its place."""
        return self.faults.is_calm and self.world.observer is None and self.places is None

    def _on_published(self, metadata: Metadata) -> None:
        subtasks, unaligned = len(metadata.subtasks), sum(snapshot.unaligned for snapshot in metadata.subtasks)
        told = f"checkpoint {metadata.checkpoint_id} is complete: {subtasks} subtasks, {unaligned} unaligned"
        self.world.tell("log", told, About((metadata.checkpoint_id,)))
        self.job.predecessors.on_published(metadata)
        self.fault_injector.on_published(metadata)
        self.patience.on_published()

    def _on_aborted(self, reason: str, detail: str) -> None:
        timeout_ms = self.workload.configuration.get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).ms
        self.statistics.aborted.append(reason)
        self.patience.on_aborted(reason, not self.job.pending_checkpoints())
        if "incomplete" in detail or "names segments" in detail:
            self.world.violate(f"a checkpoint cannot be published: {detail}")
        elif self._is_calm and timeout_ms >= 60_000 and reason != FailureReason.SUBSUMED:
            self.world.violate(f"nothing has gone wrong, and a checkpoint was given up: {reason} {detail}")

    def _resume_with_timeout(self, timeout: str) -> None:
        self.workload.configuration.set(CheckpointingOptions.CHECKPOINTING_TIMEOUT, timeout)
        self.world.tell("user", f"resumes the job with {CheckpointingOptions.CHECKPOINTING_TIMEOUT.key} {timeout}")
        self.world.after(0.0, None, self.fault_injector.inject_unless_over, "kill_driver")

    def _on_driver_raised(self, driver: DriverProcess, detail: str) -> None:
        if "simulated store" in detail.splitlines()[-1] and not hasattr(driver, "master"):
            # The driver could not even read the directory; another one is started.
            self.fault_injector.drop_driver(next(d for d in self.drivers if d.host is driver), 0.0)
            self.start_driver_soon()
            return
        self.world.violate(f"{driver.process.name} raised\n{detail}")

    def _on_driver_ended(self, driver: DriverProcess, outcome: JobOutcome) -> None:
        ended = next(d for d in self.drivers if d.host is driver)
        if unanswered := self.fault_injector.orders.unanswered(ended):
            self.world.violate(f"{driver.process.name} has ended, and never answered the savepoint orders {unanswered}")
        if unanswered := self.fault_injector.rescale_orders.unanswered(ended):
            self.world.violate(f"{driver.process.name} has ended, and never answered the rescales {unanswered}")
        if self.job.is_left_by(driver):
            return  # of a job that was stopped with a savepoint, from which the present one has started
        told = _PROBE.sub("the probe", outcome.error or "")
        self.world.tell(driver.process.name, f"has ended: {outcome.state} {told}", EVERYONE)
        error = outcome.error or ""
        if self.job.expected_failure is not None and outcome.state == "FAILED" and self.job.expected_failure in error:
            self.is_over = self.is_cancelled = True
        elif outcome.state == "FINISHED" and (stopped_with := self.job.stopped_with) is not None:
            self.fault_injector.on_stopped()
            self.start_new_job(f"{len(self.drivers):032x}", stopped_with)
        elif outcome.state == "FINISHED":
            # The driver that took the job over may have been killed before it had deleted what is no longer needed.
            self.is_over, self.is_left_unswept = True, self.job.has_lost_its_owner
        elif outcome.state == "CANCELED" and outcome.is_suspended and driver.master.job_directory.takeover is None:
            self.start_driver_soon()
        elif outcome.state == "CANCELED" and self.job.is_resumed_after_cancel:
            self.rescale()
            self.start_driver_soon()
        elif outcome.state == "CANCELED" and "cancel" in self.statistics.faults:
            self.is_over = self.is_cancelled = True
        elif "has ended (" in error and (stopped_with := self.job.stopped_with) is not None:
            # The driver that stopped the job was killed before anybody heard of it.
            self.fault_injector.on_stopped()
            self.start_new_job(f"{len(self.drivers):032x}", stopped_with)
        elif "has ended (" in error and self.job.is_ended_in_log:
            # The driver that ended it may have been killed before it had deleted what is no longer needed.
            self.is_over = self.is_left_unswept = True
            self.is_cancelled |= "(CANCELED)" in error
        elif outcome.state == "FAILED" and _DOES_NOT_FIT in error:
            self._on_refused_graph(driver, error)
        elif outcome.state == "FAILED" and self.job.has_lost_the_log(driver):
            if (
                "taken over" not in error
                # A driver that has lost the job it began before it had made sure of its fence.
                and "has a log already" not in error
                and not self._may_fail(driver, error)
                and self.fault_injector.store_faults == NO_STORE_FAULTS
            ):
                self.world.violate(f"{driver.process.name} was fenced, and says something else: {error}")
            if not self.job.some_driver_continues():
                self.start_driver_soon()
        elif outcome.state == "FAILED" and self._may_fail(driver, error):
            self.start_driver_soon()
        else:
            self.world.violate(f"{driver.process.name} ended {outcome.state}: {error}")

    def _on_refused_graph(self, driver: DriverProcess, error: str) -> None:
        """Continue with the previous graph. There is one legal reason for a refusal: rows in flight on a vanished
        edge.
        """
        assert self.job.log is not None
        newest, graph = self.job.log.newest or self.job.started_from, self.job.log.candidates[driver.incarnation][0]
        if newest is not None and self.job.log.owner == driver.incarnation:
            vanished = edges_in_flight(newest) - {e.name for e in graph.edges}
            if not vanished:
                self.world.violate(f"{driver.process.name}: a changed graph is refused for nothing: {error}")
        self.statistics.refused += 1
        if driver is self.drivers[-1].host or not self.job.some_driver_continues():
            # A newer one may have ended because this one fenced it before it was refused.
            if newest is not None:
                self.workload.go_back_to(newest.incarnation)
                self._is_undone = True
            self.start_driver_soon()

    def start_driver_soon(self) -> None:
        self.world.after(self.world.chance() * 1000, None, self.start_driver_unless_over, self.job.directory)

    def start_driver_unless_over(self, directory: str) -> None:
        """Start a driver of the job in `directory`, unless a new job has been started from it meanwhile."""
        if not self.is_over and directory == self.job.directory:
            self.start_driver()

    def _may_fail(self, driver: DriverProcess, error: str) -> bool:
        """Return whether a driver may give up, because the store was out of order for long, or because its program is
        too old; the next one continues.
        """
        if self.job.is_resumed_after_failure or self.job.declares_older_types(driver, error):
            return True
        may = self.job.has_checkpoints and not self._is_calm
        return may and "store" in error
