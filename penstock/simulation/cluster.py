"""One run: a workload, drivers and their slots, faults, and the checkers that watch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions
from penstock.protocol.log_entries import Ended
from penstock.protocol.messages import Message, Restored, SubtaskFailed
from penstock.runtime.job_master.events import CancelRequested, CheckpointRequested
from penstock.runtime.job_master.outcome import JobOutcome
from penstock.simulation import surroundings
from penstock.simulation.checkers import AnswerChecker, LogChecker, check_cancelled, check_end
from penstock.simulation.control_network import ControlNetwork
from penstock.simulation.data_network import DataNetwork
from penstock.simulation.driver import DriverProcess, DriverSurroundings
from penstock.simulation.faults import NO_STORE_FAULTS, FaultPlan
from penstock.simulation.output import Output, Pending
from penstock.simulation.scale import SMALL, Scale, random_scale, scaled
from penstock.simulation.slots import SlotKeeper, SlotProcess
from penstock.simulation.store import FaultyStore, SharedObjects, StoreFaults
from penstock.simulation.workload import Workload
from penstock.simulation.world import Process, World

JOB_ID = "5eed" * 8
CHECKPOINT_ROOT = "/checkpoints"
_PROBE = re.compile(r"probe/\w+")  # its name is random, and means nothing


@dataclass(frozen=True)
class Pace:
    """How long things take, in ms: each is drawn anew from 0 to about so much."""

    step_ms: float = 0.1
    data_ms: float = 1.0
    control_ms: float = 1.0
    work_ms: float = 2.0
    slot_start_ms: float = 50.0
    bytes_share: float = 0.0
    control_as_bytes: bool = False
    scale: Scale = SMALL


@dataclass(frozen=True)
class Bounds:
    """A run that goes beyond has hung."""

    events_max: int = 400_000
    ms_max: float = 900_000.0


@dataclass
class Driver:
    process: Process
    host: DriverProcess
    control: ControlNetwork
    keeper: SlotKeeper


@dataclass
class Statistics:
    """What a run has been through: tells whether faults and modes are really tried."""

    drivers: int = 0
    generations: int = 0
    faults: list[str] = field(default_factory=list)


class Cluster:
    """Implements `penstock.simulation.surroundings.Surroundings`."""

    def __init__(self, world: World, workload: Workload, faults: FaultPlan, pace: Pace, bounds: Bounds) -> None:
        self.world = world
        self.workload = workload
        self.faults = faults
        self.pace = pace
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
        if self.checkpointing:
            self.log = LogChecker(world, workload, self.shared, self.directory)
            self.shared.on_created = lambda name, data: self.log.on_created(name, data) if self.log else None
        self.drivers: list[Driver] = []
        self.is_over = False
        self.is_left_unswept = self.is_cancelled = False
        self.expected_failure: str | None = None
        """What the job has to fail with, for a scenario that nothing can mend."""
        self._faults_left = faults.count
        self._faults_begun = False
        self._strikes_when_running = False
        self._newest_generation: Any = None
        self._store_faults = faults.store
        self._next_store_fault: StoreFaults | None = None
        self._failing_functions = 0
        self._failing_commits = 0

    # ---- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        surroundings.enter(self)
        try:
            with scaled(self.pace.scale):
                self._run()
        finally:
            surroundings.enter(None)
        if not self.world.violations:
            self._check_end()

    def _check_end(self) -> None:
        restarts = sum(d.host.master.lifecycle.restarts for d in self.drivers if d.host.has_begun)
        # A restore that the store refuses is a failure of its own, however many there are.
        if not self.shared.failures and not self.world.observer and restarts > 3 * len(self.statistics.faults):
            self.world.violate(f"{restarts} restarts after {len(self.statistics.faults)} faults")
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
        """One that has slept through the end wakes up, and finds that it has lost the job."""
        return not any(d.process.is_alive and not d.host.has_ended for d in self.drivers)

    def _where_it_hangs(self) -> str:
        if not self.drivers:
            return "no driver"
        late = [d for d in self.drivers if d.process.is_alive and not d.host.has_ended]
        driver = (late or self.drivers)[-1]
        life = driver.host.master.lifecycle
        return f"{driver.process.name}: {life.phase}, {life.state}, generation {life.generation}"

    def start_new_job(self, job_id: str, checkpoint: str) -> Driver:
        """From a checkpoint of the present one, which is left alone from here on."""
        assert self.log is not None
        before = self.log
        self.directory = f"{CHECKPOINT_ROOT}/{job_id}"
        self.log = LogChecker(self.world, self.workload, self.shared, self.directory)
        self.log.committable |= before.committable
        self.workload.configuration.set("pipeline.job-id", job_id)
        self.workload.configuration.set("execution.state-recovery.path", f"{before.directory}/{checkpoint}")
        return self.start_driver()

    def start_driver(self) -> Driver:
        """The first one, or one that resumes the job's directory."""
        world, pace, faults = self.world, self.pace, self.faults
        number = len(self.drivers)
        process = Process(f"d{number}", world.random.randint(-10**9, 10**9))
        control = ControlNetwork(world, process, pace.control_ms, pace.control_as_bytes)
        control.on_sent = self._on_sent
        keeper = SlotKeeper(
            world, control, self.network, self._store, process.name, pace.step_ms,
            pace.slot_start_ms, faults.speculation_share, faults.retry_share,
        )  # fmt: skip
        configuration = self.workload.configuration.copy()
        if self.log is not None and self.log.entries:
            configuration.set("execution.state-recovery.path", self.directory)
            configuration.remove_config("pipeline.job-id")
        elif self.checkpointing and not configuration.contains_key("pipeline.job-id"):
            configuration.set("pipeline.job-id", JOB_ID)
        around = DriverSurroundings(control, keeper, self._store, pace.work_ms)
        host = DriverProcess(
            world, process, self.workload.graph, configuration, f"{world.random.getrandbits(32):08x}", around,
            self._on_driver_ended, self._on_driver_raised, self._on_aborted,
        )  # fmt: skip
        driver = Driver(process, host, control, keeper)
        self.drivers.append(driver)
        self.statistics.drivers += 1
        world.after(0.0, process, host.start)
        world.tell(process.name, f"starts, after {len(self.log.entries) if self.log else 0} log entries")
        return driver

    def _store(self, process: Process, directory: str) -> FaultyStore:
        return FaultyStore(self.world, process, self.shared, directory, self._faults_of_call)

    def _faults_of_call(self) -> StoreFaults:
        once, self._next_store_fault = self._next_store_fault, None
        return self._store_faults if once is None else once

    def fail_next_store_call(self, is_carried_out: bool = False) -> None:
        self._next_store_fault = StoreFaults(reply_lost=1.0) if is_carried_out else StoreFaults(refused=1.0)

    # ---- what is told to us -------------------------------------------------------------------------------------

    def _on_sent(self, process: str, message: Message) -> None:
        self.answers.on_sent(process, message)
        if isinstance(message, SubtaskFailed):
            is_expected = self.expected_failure is not None and self.expected_failure in message.error
            if is_expected or "simulated" in message.error:
                return
            if not self._reads_what_the_owner_deleted(process, message.error):
                self.world.violate(f"{process}: {message.operator} failed: {message.error}\n{message.traceback}")
        elif isinstance(message, Restored) and message.generation != self._newest_generation:
            self._newest_generation = message.generation
            self.statistics.generations += 1
            if not self._faults_begun:
                self._faults_begun = True
                self._plan_fault()
            elif self._strikes_when_running:
                self._strikes_when_running = False
                self.world.after(self.world.chance() * 30, None, self._fault)

    def _reads_what_the_owner_deleted(self, process: str, error: str) -> bool:
        """A driver that has been fenced and does not know it yet restores what its successor needs no more."""
        driver = next(d for d in self.drivers if process.startswith(d.process.name))
        return self._has_lost_the_log(driver.host) and "is missing" in error

    def _on_aborted(self, reason: str, detail: str) -> None:
        if "incomplete" in detail:
            self.world.violate(f"a checkpoint cannot be published: {detail}")
        elif self.faults.is_calm and self.world.observer is None and self.checkpoint_timeout_ms >= 60_000:
            self.world.violate(f"nothing has gone wrong, and a checkpoint was given up: {reason} {detail}")

    def _on_driver_raised(self, driver: DriverProcess, detail: str) -> None:
        if "simulated store" in detail.splitlines()[-1] and not hasattr(driver, "master"):
            # It could not even look into the directory; whoever started it tries again.
            self._drop(next(d for d in self.drivers if d.host is driver), 0.0)
            self._start_driver_soon()
            return
        self.world.violate(f"{driver.process.name} raised\n{detail}")

    def _on_driver_ended(self, driver: DriverProcess, outcome: JobOutcome) -> None:
        told = _PROBE.sub("the probe", outcome.error or "")
        self.world.tell(driver.process.name, f"has ended: {outcome.state} {told}")
        error = outcome.error or ""
        if self.expected_failure is not None and outcome.state == "FAILED" and self.expected_failure in error:
            self.is_over = self.is_cancelled = True
        elif outcome.state == "FINISHED":
            self.is_over = True
        elif outcome.state == "CANCELED" and "cancel" in self.statistics.faults:
            self.is_over = self.is_cancelled = True
        elif "has ended (" in error and self._is_ended_in_log():
            # The driver that ended it may have been killed before it had deleted what is not needed any more.
            self.is_over = self.is_left_unswept = True
            self.is_cancelled |= "(CANCELED)" in error
        elif outcome.state == "FAILED" and self._has_lost_the_log(driver):
            if "taken over" not in error and not self._may_fail(error) and self._store_faults == NO_STORE_FAULTS:
                self.world.violate(f"{driver.process.name} was fenced, and says something else: {error}")
            if not any(d.process.is_alive and not d.host.has_ended for d in self.drivers):
                self._start_driver_soon()
        elif outcome.state == "FAILED" and self._may_fail(error):
            self._start_driver_soon()
        else:
            self.world.violate(f"{driver.process.name} ended {outcome.state}: {error}")

    def _start_driver_soon(self) -> None:
        self.world.after(self.world.chance() * 1000, None, self._start_unless_over)

    def _start_unless_over(self) -> None:
        if not self.is_over:
            self.start_driver()

    def _has_lost_the_log(self, driver: DriverProcess) -> bool:
        return self.log is not None and self.log.owner != driver.incarnation

    def _is_ended_in_log(self) -> bool:
        return self.log is not None and any(isinstance(e, Ended) for e in self.log.entries)

    def _may_fail(self, error: str) -> bool:
        """A driver may give up where the store was out of order for long; the next one goes on."""
        may = self.checkpointing and not (self.faults.is_calm and self.world.observer is None)
        return may and "store" in error

    # ---- surroundings of user code ------------------------------------------------------------------------------

    def pass_time(self, elapsed_ms: float) -> None:
        self.world.pass_time(elapsed_ms)

    def violate(self, what: str) -> None:
        self.world.violate(what)

    def fail_now(self) -> bool:
        if self._failing_functions and self.world.chance() < 0.2:
            self._failing_functions -= 1
            return True
        return False

    def prepare(self, name: str, pending: Pending) -> None:
        if name in self.output.pending:
            self.world.violate(f"pending output {name} is written a second time")
        self.output.pending[name] = pending

    def commit(self, name: str) -> None:
        if self.log is not None and name.encode() not in self.log.committable:
            self.world.violate(f"{name} is committed, but no checkpoint in the log says so")
        if name not in self.output.pending:
            self.world.violate(f"{name} is committed, but was never prepared")
        if self._failing_commits:
            self._failing_commits -= 1
            if self.world.chance() < 0.5:
                raise OSError("simulated failure before a commit")
            self._make_visible(name)
            raise OSError("simulated failure after a commit")
        self._make_visible(name)

    def _make_visible(self, name: str) -> None:
        if name in self.output.committed:
            self.output.repeated += 1
        else:
            self.output.committed[name] = None
            self.world.tell("output", f"committed {name}")

    # ---- faults -------------------------------------------------------------------------------------------------

    def _plan_fault(self) -> None:
        if self._faults_left:
            self._faults_left -= 1
            if self._faults_left < self.faults.count - 1 and self.world.chance() < self.faults.recovering_share:
                self._strikes_when_running = True
                return
            self.world.after(self.world.uniform(0.1, 2.0) * self.faults.gap_ms, None, self._fault)

    def _fault(self) -> None:
        if self.is_over:
            return
        kind = self.world.random.choice(self.faults.kinds)
        self.strike(kind)
        self._plan_fault()

    def strike(self, kind: str) -> None:
        self.world.tell("FAULT", kind)
        self.statistics.faults.append(kind)
        getattr(self, f"fault_{kind}")()

    def strike_now(self, kind: str, duration_ms: float) -> None:
        """A pause of the newest driver that begins with what it does right now."""
        self.world.tell("FAULT", f"{kind} for {duration_ms:.0f} ms")
        self.statistics.faults.append(kind)
        self.drivers[-1].process.paused_until_ms = self.world.now_ms + duration_ms

    def _some_slot(self) -> SlotProcess | None:
        processes = [p for d in self.drivers if d.process.is_alive for p in d.keeper.processes]
        return self.world.random.choice(processes) if processes else None

    def fault_kill_slot(self) -> None:
        if slot := self._some_slot():
            slot.kill()

    def fault_kill_two_slots(self) -> None:
        self.fault_kill_slot()
        self.world.after(self.world.chance() * 100, None, self.fault_kill_slot)

    def fault_break_data_link(self) -> None:
        slot = self._some_slot()
        if slot is not None and slot.endpoint.links:
            slot.endpoint.break_link(self.world.random.choice(sorted(slot.endpoint.links)))

    def fault_break_control_link(self) -> None:
        """The driver loses a slot that lives on, and notices later."""
        if slot := self._some_slot():
            slot.link.break_up()
            slot.link.close_down(self.world.chance() * 5000)

    def fault_pause_slot(self) -> None:
        if slot := self._some_slot():
            slot.process.paused_until_ms = self.world.now_ms + self.world.random.choice((10.0, 300.0, 8000.0))

    def fault_request_checkpoint(self) -> None:
        """A user asks for one, now."""
        self._tell_driver(CheckpointRequested())

    def fault_cancel(self) -> None:
        """Ctrl-C."""
        self._tell_driver(CancelRequested())

    def _tell_driver(self, event: Any) -> None:
        driver = self.drivers[-1]
        if driver.process.is_alive and driver.host.has_begun and not driver.host.has_ended:
            self.world.after(0.0, driver.process, driver.host.handle, event)

    def fault_expire_checkpoint(self) -> None:
        """Whatever is pending takes too long, while it is still on the wire; the next one follows."""
        driver = self.drivers[-1]
        if driver.process.is_alive and not driver.host.has_ended and driver.host.has_begun:
            for pending in driver.host.master.coordinator._pending.values():
                pending.expires_ms = driver.host.clock.monotonic_ms()
            self.world.after(0.0, driver.process, driver.host.look)

    def fault_clock_jump(self) -> None:
        if slot := self._some_slot():
            slot.clock.jump(self.world.uniform(1, 3000))
            slot.process.wall_skew_ms = self.world.random.randint(-(10**9), 10**9)

    def fault_kill_driver(self) -> None:
        driver = self.drivers[-1]
        if driver.process.is_alive and not driver.host.has_ended:
            self._drop(driver, self.world.random.choice((1.0, 100.0, 5000.0)))
            self._start_driver_soon()

    def fault_kill_driver_unnoticed(self) -> None:
        """Its slots hear nothing of it for seconds."""
        driver = self.drivers[-1]
        if driver.process.is_alive and not driver.host.has_ended:
            self._drop(driver, 20_000.0)
            self._start_driver_soon()

    def fault_kill_slot_beside_a_stuck_one(self) -> None:
        """One slot dies, and in another one a subtask's thread never comes back from user code."""
        processes = [p for d in self.drivers if d.process.is_alive for p in d.keeper.processes]
        if len(processes) > 1:
            dying, stuck = self.world.random.sample(processes, 2)
            stuck.get_stuck()
            dying.kill()

    def kill_driver_and_slots(self) -> None:
        """Everything of the job's newest driver is gone at once."""
        driver = self.drivers[-1]
        self._drop(driver, 0.0)
        for slot in list(driver.keeper.processes):
            slot.kill()

    def stop_checkpoints(self) -> None:
        """The newest driver triggers none from here on."""
        self.drivers[-1].host.master.coordinator._next_trigger_ms = None

    def _drop(self, driver: Driver, notice_ms: float) -> None:
        """The driver's process is gone; its slots notice within that time."""
        driver.process.is_alive = False
        driver.keeper.end()
        driver.control.end(notice_ms)

    def fault_pause_driver(self) -> None:
        """It stops, wakes up, and finds itself where it was."""
        driver = self.drivers[-1]
        driver.process.paused_until_ms = self.world.now_ms + self.world.random.choice((50.0, 2000.0))

    def fault_take_over(self) -> None:
        """Somebody resumes the job while its driver still lives: it is fenced, whether it sleeps or not."""
        driver = self.drivers[-1]
        if not driver.process.is_alive or driver.host.has_ended:
            return
        if self.world.chance() < 0.7:
            driver.process.paused_until_ms = self.world.now_ms + self.world.uniform(1, 1000)
        self.world.after(self.world.chance() * 50, None, self._start_unless_over)

    def fault_store_outage(self) -> None:
        self._store_faults = self.faults.outage
        self.world.after(self.world.uniform(1, 400), None, self._end_outage)

    def _end_outage(self) -> None:
        self._store_faults = self.faults.store

    def fault_user_failure(self) -> None:
        self._failing_functions = self.world.random.randint(1, 2)

    def fault_commit_failure(self) -> None:
        self._failing_commits = self.world.random.randint(1, 3)


def random_pace(random: Random) -> Pace:
    return Pace(
        step_ms=random.choice((0.05, 0.2, 2.0)),
        data_ms=random.choice((0.2, 0.2, 2.0, 10.0)),
        control_ms=random.choice((0.2, 0.2, 2.0, 10.0)),
        work_ms=random.choice((0.5, 0.5, 5.0, 30.0)),
        slot_start_ms=random.choice((10.0, 100.0)),
        bytes_share=random.choice((0.0, 0.0, 0.5, 1.0)),
        control_as_bytes=random.random() < 0.2,
        scale=random_scale(random),
    )


def random_configuration(random: Random, pace: Pace) -> Configuration:
    """Options of the job: small windows, frequent checkpoints, every mode."""
    # Short enough to expire now and then, long enough for a checkpoint that nothing disturbs.
    short_ms = int(30 * (pace.data_ms + pace.control_ms + pace.work_ms + pace.step_ms * 10)) + 400
    options: dict[str, Any] = {
        "heartbeat.timeout": "6 s",
        "slot.request.timeout": "60 s",
        "task.cancellation.timeout": "20 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 1_000_000,
        "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms")),
        "penstock.network.window-bytes": random.choice((700, 2_000, 20_000)),
        "penstock.network.output-queue-bytes": random.choice((700, 2_000, 20_000)),
        "penstock.network.overdraft-bytes-max": random.choice((0, 2_000, 100_000)),
        "penstock.network.bound-bytes-min": random.choice((600, 16_384)),
        "penstock.network.bound-target": random.choice(("0 ms", "5 ms", "25 ms")),
        "penstock.slice.target": random.choice(("1 ms", "5 ms")),
        "penstock.parking.enabled": random.random() < 0.5,
        "pipeline.object-reuse": random.random() < 0.2,
        "execution.buffer-timeout.interval": random.choice(("0 ms", "5 ms", "100 ms")),
    }
    if random.random() < 0.06:
        return Configuration(options)
    mode = random.choice(("aligned", "timeout", "timeout", "unaligned", "unaligned"))
    options |= {
        "execution.checkpointing.interval": random.choice(("10 ms", "20 ms", "60 ms")),
        "execution.checkpointing.min-pause": random.choice(("0 ms", "0 ms", "20 ms")),
        "execution.checkpointing.timeout": random.choice(("60 s", "60 s", f"{short_ms} ms")),
        "execution.checkpointing.tolerable-failed-checkpoints": 1_000_000,
        "execution.checkpointing.num-retained": random.choice((1, 1, 3)),
        "execution.checkpointing.dir": CHECKPOINT_ROOT,
        "execution.checkpointing.unaligned.enabled": mode != "aligned",
        "execution.checkpointing.aligned-checkpoint-timeout": (
            random.choice(("1 ms", "5 ms", "20 ms")) if mode == "timeout" else "0 ms"
        ),
        "penstock.checkpoint-storage.fsync": False,
    }
    return Configuration(options)


