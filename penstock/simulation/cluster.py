"""Runs one plan: a workload, drivers and their slots, faults, and the checkers that watch."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from penstock.common.options import CheckpointingOptions, NetworkOptions
from penstock.jobmaster.outcome import JobOutcome
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.log_entries import Ended
from penstock.protocol.values.messages import Message, Restored, SlotAck, SubtaskFailed
from penstock.protocol.values.metadata import Metadata
from penstock.protocol.values.reasons import FailureReason
from penstock.simulation import world_hooks
from penstock.simulation.checkers import AnswerChecker, check_cancelled, check_end
from penstock.simulation.control_network import ControlNetwork
from penstock.simulation.data_network import DataNetwork
from penstock.simulation.driver import DriverEnvironment, DriverProcess
from penstock.simulation.drivers import Driver, Statistics
from penstock.simulation.durations import DurationChecker
from penstock.simulation.fault_injector import FaultInjector
from penstock.simulation.faults import NO_STORE_FAULTS, FaultPlan
from penstock.simulation.log_checker import LogChecker
from penstock.simulation.output import Output
from penstock.simulation.places import PlacePlan, Places
from penstock.simulation.predecessor_checker import PredecessorChecker
from penstock.simulation.scale import scaled
from penstock.simulation.settings import CHECKPOINT_ROOT, Bounds, Pace
from penstock.simulation.slots import SlotKeeper, SlotProcess
from penstock.simulation.store import FaultyStore, SharedObjects, StoreFaults
from penstock.simulation.trace import EVERYONE, About
from penstock.simulation.transactions import TransactionBroker
from penstock.simulation.workload import Workload
from penstock.simulation.world import Process, World
from penstock.simulation.world_hooks import Pending
from penstock.storage.layout import METADATA_NAME, SegmentName, parse
from penstock.storage.metadata import decode_metadata

JOB_ID = "5eed" * 8
ROOM_FOR_A_ROW_BYTES = 100_000
"""No row of a simulated job becomes more than that."""
_DOES_NOT_FIT = "the checkpoint does not fit the program"
_PROBE = re.compile(r"probe/\w+")  # its name is random, and means nothing


class Cluster:
    """Implements `penstock.simulation.world_hooks.WorldHooks`."""

    def __init__(self, world: World, workload: Workload, faults: FaultPlan, pace: Pace, bounds: Bounds) -> None:
        self.world = world
        self.workload = workload
        self.faults = faults
        self.pace = pace
        world.upload_ms = pace.upload_ms
        self.bounds = bounds
        self.checkpointing = workload.configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is not None
        self.checkpoint_timeout_ms = workload.configuration.get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).ms
        self.shared = SharedObjects()
        self.output = Output()
        self.network = DataNetwork(world, pace.data_ms, pace.bytes_share)
        self.answers = AnswerChecker(world)
        self.statistics = Statistics()
        self.directory = f"{CHECKPOINT_ROOT}/{JOB_ID}"
        self.log: LogChecker | None = None
        self._earlier_logs: list[LogChecker] = []
        if self.checkpointing:
            self.log = LogChecker(world, workload, self.shared, self.directory)
            self.log.told = self._on_published
            self.shared.on_created = self._on_created
            self.shared.on_deleted = self._on_deleted
        self.predecessors = PredecessorChecker(world, self._pending_checkpoints)
        self.drivers: list[Driver] = []
        self.places: PlacePlan | None = None
        """How many places there are for the tasks of each driver."""
        self.is_over = False
        self.is_left_unswept = self.is_cancelled = False
        self.is_resumed_after_failure = False
        """Whether somebody resumes the job when it has failed for good."""
        self.is_resumed_after_cancel = False
        """Whether somebody resumes it, at another parallelism, when it has been cancelled."""
        self.expected_failure: str | None = None
        """What the job has to fail with, for a scenario that nothing can mend."""
        self.durations: DurationChecker | None = None
        self._newest_generation: Any = None
        self._is_undone = False
        """Whether the next driver runs what ran before a graph that was refused."""
        self._started_from: Metadata | None = None
        """The checkpoint or savepoint that the present job was started from, if it is not the first."""
        self._next_store_fault: StoreFaults | None = None
        self.fault_injector = FaultInjector(self, world, faults)

    def bound_durations(self) -> None:
        """Limit the time that checkpoints take, if nothing goes wrong and no snapshot has to wait for the rest of a row
        that waits for room.
        """
        has_room = self.workload.configuration.get(NetworkOptions.OVERDRAFT_BYTES_MAX) >= ROOM_FOR_A_ROW_BYTES
        if self.checkpointing and self.faults.is_calm and has_room and not self.pace.bytes_share:
            pace, store_ms = self.pace, self.faults.store.late_ms
            self.durations = DurationChecker(self.world, self.workload.graph, pace.step_ms, pace.control_ms, store_ms)
            self.network.measured = self.durations.measured
            self.world.is_parallel = True

    # ---- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        world_hooks.enter(self)
        try:
            with scaled(self.pace.scale):
                self._run()
        finally:
            world_hooks.enter(None)
            self.world.disk.close()
        if not self.world.violations:
            self._check_end()

    def _check_end(self) -> None:
        restarts = sum(d.host.master.lifecycle.restarts.count for d in self.drivers if d.host.has_begun)
        # Each change of places may end a task of every slot, or give one back.
        moves = 0 if self.places is None else len(self.places.changes) * self.workload.graph.slots
        # A restore that the store refuses is a failure of its own, however many there are.
        faults = len(self.statistics.faults) + moves
        if not self.shared.failures and not self.world.observer and restarts > 3 * faults:
            self.world.violate(f"{restarts} restarts after {faults} faults")
        if self.is_cancelled:
            check_cancelled(self.world, self.output, self.workload, None if self.is_left_unswept else self.log)
        else:
            check_end(self.world, self.output, self.workload, self.log, is_swept=not self.is_left_unswept)

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
        assert self.log is not None
        before = self.log
        self._earlier_logs.append(before)
        path = f"{start_from}/{METADATA_NAME}"
        self._started_from = decode_metadata(self.shared.objects[path], path)
        self.directory = f"{CHECKPOINT_ROOT}/{job_id}"
        self.answers = AnswerChecker(self.world)  # its generations and checkpoints are numbered from the start again
        self.predecessors = PredecessorChecker(self.world, self._pending_checkpoints)
        self.log = LogChecker(self.world, self.workload, self.shared, self.directory)
        self.log.committable |= before.committable
        self.log.note(self._started_from)
        self.log.told = self.predecessors.on_published
        self.output.confirmed.clear()  # it may start from an older checkpoint, whose output is committed again
        self.workload.configuration.set("pipeline.job-id", job_id)
        self.workload.configuration.set("execution.state-recovery.path", start_from)
        return self.start_driver()

    def start_driver(self) -> Driver:
        """Start the first driver, or one that resumes the job's directory."""
        world, pace, faults = self.world, self.pace, self.faults
        number = len(self.drivers)
        process = Process(f"d{number}", world.random.randint(-(10**9), 10**9))
        control = ControlNetwork(world, process, pace.control_ms, pace.control_as_bytes)
        control.on_sent = self._on_sent
        control.on_told = partial(self._on_told, number)
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
        if self.log is not None and self.log.entries:
            configuration.set("execution.state-recovery.path", self.directory)
            configuration.remove_config("pipeline.job-id")
        elif self.checkpointing and not configuration.contains_key("pipeline.job-id"):
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
        if self.log is not None:
            self.log.candidates[host.incarnation] = [self.workload.graph]
        driver = Driver(process, host, control, keeper)
        self.drivers.append(driver)
        self.statistics.drivers += 1
        world.after(0.0, process, host.start)
        self.network.edges = [(edge.source, edge.target) for edge in self.workload.graph.edges]
        world.tell(process.name, f"starts, after {len(self.log.entries) if self.log else 0} log entries", EVERYONE)
        return driver

    def rescale(self) -> bool:
        """Let the next driver run operators at other parallelisms. Returns whether any changes."""
        changed = self.workload.rescale(self.world.random)
        self.statistics.rescales += changed
        self.world.tell("user", f"rescaled to {self.workload.parallelisms}", EVERYONE)
        return changed

    def _store(self, process: Process, directory: str) -> FaultyStore:
        return FaultyStore(self.world, process, self.shared, directory, self._faults_of_call)

    def _faults_of_call(self) -> StoreFaults:
        once, self._next_store_fault = self._next_store_fault, None
        return self.fault_injector.store_faults if once is None else once

    def fail_next_store_call(self, is_carried_out: bool = False) -> None:
        self._next_store_fault = StoreFaults(reply_lost=1.0) if is_carried_out else StoreFaults(refused=1.0)

    # ---- reports -------------------------------------------------------------------------------------

    def _on_sent(self, process: str, message: Message) -> None:
        if self._is_of_present_job(process):
            self.answers.on_sent(process, message)
        if (slot := self._process_named(process)) is not None:
            slot.revocations.on_sent(message)
        if isinstance(message, SlotAck):
            if self.durations is not None:
                self.durations.on_acknowledged(message)
            self.fault_injector.on_acknowledged()
        if isinstance(message, SubtaskFailed):
            is_expected = self.expected_failure is not None and self.expected_failure in message.error
            if is_expected or "simulated" in message.error:
                return
            if not self._reads_what_the_owner_deleted(process, message.error):
                self.world.violate(f"{process}: {message.operator} failed: {message.error}\n{message.traceback}")
        elif isinstance(message, Restored):
            self.statistics.replaced += self._seat_of(process) != message.slot
            if message.generation != self._newest_generation:
                self._newest_generation = message.generation
                self.statistics.generations += 1
                self.fault_injector.on_running()

    def _on_told(self, number: int, message: Message) -> None:
        # A driver that was fenced, and does not know it yet, numbers its checkpoints as its successor does.
        if self.log is not None and self.log.owner == self.drivers[number].host.incarnation:
            self.predecessors.on_told(message)
        if self.durations is not None:
            self.durations.on_told(message)

    def _is_of_present_job(self, process: str) -> bool:
        """Return whether the process is not one that outlives a job which was stopped, and from whose savepoint the
        present job has started: that numbers its generations and checkpoints from the start again.
        """
        return not self._is_of_earlier_job(
            next(d.host for d in self.drivers if process.startswith(f"{d.process.name}s"))
        )

    def _is_of_earlier_job(self, driver: DriverProcess) -> bool:
        return driver.has_begun and self.checkpointing and driver.master.identity.directory != self.directory

    def _seat_of(self, process: str) -> int:
        return next(p.slot for d in self.drivers for p in d.keeper.processes if p.process.name == process)

    def _process_named(self, name: str) -> SlotProcess | None:
        return next((p for d in self.drivers for p in d.keeper.processes if p.process.name == name), None)

    def _running_slot(self) -> SlotProcess | None:
        running = self.world.running
        return None if running is None else self._process_named(running.name)

    def _on_created(self, name: str, data: bytes) -> None:
        if self.log is None:
            return
        self.log.on_created(name, data)
        found, slot = parse(name.removeprefix(f"{self.directory}/")), self._running_slot()
        if slot is not None and isinstance(found, SegmentName):
            slot.revocations.on_stored(found)

    def _on_deleted(self, name: str) -> None:
        if self.log is not None:
            self.log.on_deleted(name)
        self.predecessors.on_deleted(name.removeprefix(f"{self.directory}/"))

    def _pending_checkpoints(self) -> list[int]:
        """Return the pending checkpoints of the driver that owns the log."""
        owners = [d.host for d in self.drivers if d.process.is_alive and not self._has_lost_the_log(d.host)]
        return [number for host in owners if host.has_begun for number in host.master.coordinator.pending.ids]

    def _reads_what_the_owner_deleted(self, process: str, error: str) -> bool:
        """Return whether a driver that has been fenced, and does not know it yet, restores what its successor needs no
        more.
        """
        driver = next(d for d in self.drivers if process.startswith(d.process.name))
        return self._has_lost_the_log(driver.host) and "is missing" in error

    @property
    def _is_calm(self) -> bool:
        """Return whether nothing goes wrong in this run: no faults, no scenario, and no task that loses its place."""
        return self.faults.is_calm and self.world.observer is None and self.places is None

    def _on_published(self, metadata: Metadata) -> None:
        subtasks, unaligned = len(metadata.subtasks), sum(snapshot.unaligned for snapshot in metadata.subtasks)
        told = f"checkpoint {metadata.checkpoint_id} is complete: {subtasks} subtasks, {unaligned} unaligned"
        self.world.tell("log", told, About((metadata.checkpoint_id,)))
        self.predecessors.on_published(metadata)
        self.fault_injector.on_published(metadata)

    def _on_aborted(self, reason: str, detail: str) -> None:
        self.statistics.aborted.append(reason)
        if "incomplete" in detail or "names segments" in detail:
            self.world.violate(f"a checkpoint cannot be published: {detail}")
        elif self._is_calm and self.checkpoint_timeout_ms >= 60_000 and reason != FailureReason.SUBSUMED:
            self.world.violate(f"nothing has gone wrong, and a checkpoint was given up: {reason} {detail}")

    def _on_driver_raised(self, driver: DriverProcess, detail: str) -> None:
        if "simulated store" in detail.splitlines()[-1] and not hasattr(driver, "master"):
            # It could not even look into the directory; the keeper tries again.
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
        if self._is_of_earlier_job(driver):
            return  # of a job that was stopped with a savepoint, from which the present one has started
        told = _PROBE.sub("the probe", outcome.error or "")
        self.world.tell(driver.process.name, f"has ended: {outcome.state} {told}", EVERYONE)
        error = outcome.error or ""
        if self.expected_failure is not None and outcome.state == "FAILED" and self.expected_failure in error:
            self.is_over = self.is_cancelled = True
        elif outcome.state == "FINISHED" and (stopped_with := self._stopped_with()) is not None:
            self.fault_injector.on_stopped()
            self.start_new_job(f"{len(self.drivers):032x}", stopped_with)
        elif outcome.state == "FINISHED":
            self.is_over = True
        elif outcome.state == "CANCELED" and self.is_resumed_after_cancel:
            self.rescale()
            self.start_driver_soon()
        elif outcome.state == "CANCELED" and "cancel" in self.statistics.faults:
            self.is_over = self.is_cancelled = True
        elif "has ended (" in error and (stopped_with := self._stopped_with()) is not None:
            # The driver that stopped the job was killed before anybody heard of it.
            self.fault_injector.on_stopped()
            self.start_new_job(f"{len(self.drivers):032x}", stopped_with)
        elif "has ended (" in error and self._is_ended_in_log():
            # The driver that ended it may have been killed before it had deleted what is no longer needed.
            self.is_over = self.is_left_unswept = True
            self.is_cancelled |= "(CANCELED)" in error
        elif outcome.state == "FAILED" and _DOES_NOT_FIT in error:
            self._on_refused_graph(driver, error)
        elif outcome.state == "FAILED" and self._has_lost_the_log(driver):
            if (
                "taken over" not in error
                # A driver that has lost the job it began before it had made sure of its fence.
                and "has a log already" not in error
                and not self._may_fail(error)
                and self.fault_injector.store_faults == NO_STORE_FAULTS
            ):
                self.world.violate(f"{driver.process.name} was fenced, and says something else: {error}")
            if not self._some_driver_continues():
                self.start_driver_soon()
        elif outcome.state == "FAILED" and self._may_fail(error):
            self.start_driver_soon()
        else:
            self.world.violate(f"{driver.process.name} ended {outcome.state}: {error}")

    def _on_refused_graph(self, driver: DriverProcess, error: str) -> None:
        """Continue with the previous graph. There is one legal reason for a refusal: rows in flight on a vanished
        edge.
        """
        assert self.log is not None
        newest, graph = self.log.newest or self._started_from, self.log.candidates[driver.incarnation][0]
        if newest is not None and self.log.owner == driver.incarnation:
            vanished = edges_in_flight(newest) - {e.name for e in graph.edges}
            if not vanished:
                self.world.violate(f"{driver.process.name}: a changed graph is refused for nothing: {error}")
        self.statistics.refused += 1
        if driver is self.drivers[-1].host or not self._some_driver_continues():
            # A newer one may have ended because this one fenced it before it was refused.
            if newest is not None:
                self.workload.go_back_to(newest.incarnation)
                self._is_undone = True
            self.start_driver_soon()

    def check_savepoint(self, directory: str) -> None:
        """Check a savepoint reported to a user: of this job, or of an earlier one whose driver slept over its end."""
        log = next((earlier for earlier in self._earlier_logs if earlier.has_written(directory)), self.log)
        if log is not None:
            log.check_savepoint(directory)

    def _stopped_with(self) -> str | None:
        """Return the savepoint that the job was stopped with: somebody starts a new job from it."""
        newest = None if self.log is None else self.log.newest
        return None if newest is None else newest.savepoint

    def _some_driver_continues(self) -> bool:
        living = [d.host for d in self.drivers if d.process.is_alive and not d.host.has_ended]
        return any(not self._is_of_earlier_job(driver) for driver in living)

    def start_driver_soon(self) -> None:
        self.world.after(self.world.chance() * 1000, None, self.start_driver_unless_over, self.directory)

    def start_driver_unless_over(self, directory: str) -> None:
        """Start a driver of the job in `directory`, unless a new job has been started from it meanwhile."""
        if not self.is_over and directory == self.directory:
            self.start_driver()

    def _has_lost_the_log(self, driver: DriverProcess) -> bool:
        return self.log is not None and self.log.owner != driver.incarnation

    def _is_ended_in_log(self) -> bool:
        return self.log is not None and any(isinstance(e, Ended) for e in self.log.entries)

    def _may_fail(self, error: str) -> bool:
        """Return whether a driver may give up, because the store was out of order for long; the next one continues."""
        if self.is_resumed_after_failure:
            return True
        may = self.checkpointing and not self._is_calm
        return may and "store" in error

    # ---- hooks of user code ------------------------------------------------------------------------------

    def pass_time(self, elapsed_ms: float) -> None:
        self.world.pass_time(elapsed_ms)

    def now_ms(self) -> float:
        return self.world.now_ms

    def violate(self, what: str) -> None:
        self.world.violate(what)

    def fail_now(self) -> bool:
        if self.fault_injector.failing_functions and self.world.chance() < 0.2:
            self.fault_injector.failing_functions -= 1
            return True
        return False

    def keep(self, handle: Any) -> None:
        if (slot := self._running_slot()) is not None:
            slot.revocations.keep(handle)

    def on_timer(self, operator: str, timestamp_ms: int) -> None:
        if self.world.observer is not None:
            self.world.observer("timer", operator, timestamp_ms)

    def broker(self) -> TransactionBroker:
        return self.output.broker

    def prepare(self, name: str, pending: Pending) -> None:
        if name in self.output.pending:
            self.world.violate(f"pending output {name} is written a second time")
        self.output.pending[name] = pending

    def confirm(self, name: str) -> None:
        if name not in self.output.committed:
            self.world.violate(f"{name} is confirmed to its writer, but was never committed")
        self.output.confirmed.add(name)

    def commit(self, name: str) -> None:
        if name in self.output.confirmed:
            self.world.violate(f"{name} is committed again after its writer was told that it never is")
        if self.log is not None and name.encode() not in self.log.committable:
            self.world.violate(f"{name} is committed, but no checkpoint in the log says so")
        if name not in self.output.pending:
            self.world.violate(f"{name} is committed, but was never prepared")
        if self.fault_injector.failing_commits:
            self.fault_injector.failing_commits -= 1
            if self.world.chance() < 0.5:
                raise OSError("simulated failure before a commit")
            self._make_visible(name)
            raise OSError("simulated failure after a commit")
        self._make_visible(name)

    def _make_visible(self, name: str) -> None:
        if (wrong := self.output.commit_transaction(name)) is not None:
            self.world.violate(wrong)
        if name in self.output.committed:
            self.output.repeated += 1
        else:
            self.output.committed[name] = None
            self.world.tell("output", f"committed {name}")
