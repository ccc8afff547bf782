"""Runs one job in this driver: its JobMaster, the loop that drives it, its connections and its slots."""

from __future__ import annotations

import atexit
import os
import random
import secrets
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Callable

from penstock.common.configuration import Configuration
from penstock.common.job_execution import CheckpointFailed, RescaleFailed, SavepointFailed
from penstock.common.job_id import JobID
from penstock.common.options import CheckpointingOptions, HeartbeatOptions, PenstockOptions, SlotOptions
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import JobIdentity, is_available, look_whether_over
from penstock.jobmaster.ports import (
    CancelRequested,
    CheckpointAnswer,
    CheckpointRequested,
    Event,
    JobOutcome,
    LinkLost,
    MasterPorts,
    MessageReceived,
    RescaleOrder,
    RescaleRequested,
    SavepointOrder,
    SavepointRequested,
)
from penstock.network.control_server import ControlServer
from penstock.network.io_loop import IoLoop
from penstock.protocol.driver.slot_packing import Patience, SlotPacking
from penstock.protocol.values.messages import Message, Register
from penstock.rest.hosting import JobHosting
from penstock.spark.cluster.spark_watch import SparkWatch, why_gone
from penstock.spark.driver.driver_log import DriverLog
from penstock.spark.driver.driver_loop import DriverLoop, OrderedWork
from penstock.spark.driver.ended_job import how_it_ended
from penstock.spark.driver.spark_job_client import SparkJobClient, end_in_order_on_sigterm
from penstock.spark.driver.terminal import Progress, Terminal, TerminalConsole
from penstock.spark.frames.data_frames import JobFiles
from penstock.spark.process.system_clock import SystemClock
from penstock.spark.session import Substrate
from penstock.spark.slots.decommission import DecommissionWatch
from penstock.spark.slots.lost_slots import LostSlots
from penstock.spark.slots.slot_addresses import SlotBodies, listen_for_slots
from penstock.spark.slots.slot_failure import FRUITLESS_MAX, HOPELESS_MAX, is_final
from penstock.spark.slots.spark_slots import SparkSlots
from penstock.storage.opening import OpenStore, open_store
from penstock.storage.store_settings import StoreSettings

if TYPE_CHECKING:
    from penstock.jobmaster.job_master import JobMaster

# When a user begins to wonder why nothing happens.
WAITING_ADVICE_S = 30.0
SWITCH_INTERVAL_S = 0.0005


def driver_store(configuration: Configuration) -> OpenStore:
    """Open directories for the driver, which creates them; slots open them without creating them."""
    settings = StoreSettings.of(configuration)
    return lambda directory, create: open_store(directory, settings, create_root=create)


class SparkJob:
    """Runs everything that concerns the JobMaster in the driver's loop.

    `start_slots` may come first; then one of `start` and `give_up`, once.
    """

    _master: JobMaster

    def __init__(
        self,
        graph: JobGraph,
        configuration: Configuration,
        identity: JobIdentity,
        substrate: Substrate,
        terminal: Terminal,
        files: JobFiles,
    ) -> None:
        self._graph = graph
        self._files = files
        self._configuration = configuration
        self._substrate = substrate
        self._terminal = terminal
        self._identity = identity
        self._secret = secrets.token_bytes(32)
        self._clock = SystemClock()
        self._loop = DriverLoop(self._clock, self._on_own_error)
        self._io = IoLoop("penstock-io")
        self._server = self._listen()
        self._hosting = JobHosting(configuration)
        self._io.start()
        self._takes_checkpoints = configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is not None
        capacity = substrate.fixed_places()
        bodies = SlotBodies(configuration, substrate, identity.job_id, graph.name, self._secret, self._server.port)
        self._slots = SparkSlots(substrate, identity.job_id, bodies, self._on_slot_ended, capacity)
        self._lost = LostSlots(substrate, self._slots.tag_of, self._on_link_lost)
        self._work = OrderedWork(self._loop)
        self._commit_work = OrderedWork(self._loop, "penstock-commit")
        self._savepoint_work = OrderedWork(self._loop, "penstock-savepoint")
        self._source_work = OrderedWork(self._loop, "penstock-sources")
        self._console = TerminalConsole(terminal)
        self._own_errors = 0
        self._switch_interval_s = sys.getswitchinterval()
        self._is_ended = False
        self._packing = SlotPacking(
            self._slots,
            self._server.send,
            self._ask_places,
            terminal.tell,
            capacity,
            relieved=self._takes_checkpoints,
            patience=Patience.of(substrate.grows),
        )
        self._decommission = DecommissionWatch(
            substrate,
            self._slots,
            lambda slot, submission: self._loop.post(
                lambda: self._packing.share(slot, submission, self._master.lifecycle.roster)
            ),
        )
        interval_s = configuration.get(PenstockOptions.LOG_INTERVAL).seconds
        address = partial(self._hosting.dashboard, terminal.is_interactive)
        self._log = DriverLog(terminal, lambda: self._master.report, graph.slots, interval_s, address)
        self._watch = SparkWatch(substrate.context, self._on_spark_gone)
        self._progress = Progress(terminal, lambda: self._master.report, lambda: self._client.has_the_terminal)
        self._advice = threading.Timer(WAITING_ADVICE_S, self._advise)
        self._client = SparkJobClient(
            JobID(identity.job_id),
            lambda: self._master.report,
            lambda: self._post(CancelRequested()),
            lambda answer: self._loop.post(partial(self._order_checkpoint, answer)),
            lambda order: self._loop.post(partial(self._order_savepoint, order)),
            lambda order: self._loop.post(partial(self._order_rescale, order)),
            (lambda: self._post(CancelRequested(suspends=True))) if is_available(configuration) else None,
            terminal.tell,
            partial(self._hosting.dashboard, True),
        )

    def start_slots(self, count: int) -> None:
        """Start slots while the job is still being prepared. Their messages wait for `start`."""
        self._substrate.hide_progress_bars()
        for slot in range(count):
            self._slots.submit(slot)

    def start(self) -> SparkJobClient:
        """Start the job: the graph's sources are prepared, and it goes to the slots as it is now."""
        # Imported while the slots start, in the time of which it takes a twentieth.
        from penstock.jobmaster.job_master import JobMaster

        self._substrate.hide_progress_bars()
        ports = self._master_ports()
        self._master = JobMaster(self._graph, self._configuration, self._identity, secrets.token_hex(6), ports)
        # A program that is busy with something else (a display, collected rows) would hold up every checkpoint.
        sys.setswitchinterval(min(self._switch_interval_s, SWITCH_INTERVAL_S))
        self._master.start()
        self._loop.start(self)
        self._watch.start()
        self._log.start()
        self._hosting.start(self._client, self._identity.directory, self._terminal.tell)
        if self._configuration.get(PenstockOptions.PROGRESS_ENABLED):
            self._progress.start()
        if self._takes_checkpoints:  # without checkpoints, moving a slot would mean to start from scratch
            self._decommission.start()
        self._advice.daemon = True
        self._advice.start()
        # Some programs do not wait for their job, and Ctrl-C may come at any line.
        atexit.register(self._client.leave)
        end_in_order_on_sigterm(self._client)
        return self._client

    @property
    def has_begun(self) -> bool:
        """Return whether the JobMaster runs: then the job's end decides what is deleted."""
        return self._loop.is_started

    def give_up(self) -> None:
        """End the slots: the job cannot be started. If it has begun (Ctrl-C came in that moment), it ends in order."""
        if self.has_begun:
            self._client.leave()
            return
        self._hosting.end()
        self._release(leave=False)
        self._console.stop()

    def _master_ports(self) -> MasterPorts:
        return MasterPorts(
            self._clock,
            self._server,
            self._slots,
            self._work,
            driver_store(self._configuration),
            self._console,
            random.random,
            socket.gethostname(),
            os.getpid(),
            self._commit_work,
            self._savepoint_work,
            self._source_work,
        )

    # ---- slots ---------------------------------------------------------------------------------------------------

    def _listen(self) -> ControlServer:
        return ControlServer(
            self._io,
            listen_for_slots(self._configuration, self._substrate),
            self._identity.job_id,
            self._secret,
            on_message=self._on_message,
            on_lost=lambda process, detail: self._lost.on_lost(process, detail),
            silence_timeout_ms=int(self._configuration.get(HeartbeatOptions.HEARTBEAT_TIMEOUT).ms),
        )

    def _on_message(self, process: str, message: Message) -> None:
        if isinstance(message, Register):
            self._lost.on_registered(process, message)
            if message.hosted:
                self._slots.on_hosted(message.slot)
            else:
                self._slots.on_registered(message.slot, message.submission)
        self._post(MessageReceived(process, message))

    def _on_link_lost(self, process: str, detail: str, says_how: bool) -> None:
        def say() -> None:
            # Its peers may have reported the lost connection first, and then the failure's message lacks this.
            newest = self._master.report.recoveries[-1:]
            if says_how and not self._is_ended and not any(detail in recovery.cause for recovery in newest):
                self._terminal.tell(f"a slot was lost: {detail}", "WARN")

        self._post(LinkLost(process, detail))
        self._loop.post(say)

    def _on_slot_ended(self, slot: int, fruitless: int, detail: str) -> None:
        if fruitless < min(FRUITLESS_MAX, HOPELESS_MAX):
            return
        if (why := why_gone(self._substrate.context)) is not None:
            self._on_spark_gone(why)  # no slot is to blame
            return
        text = f"slot {slot} could not be started {fruitless} times in a row: {detail}"

        def decide() -> None:
            if is_final(detail, fruitless, self._master.lifecycle.has_run):
                self._master.abandon(text)
            elif fruitless == FRUITLESS_MAX:
                self._terminal.tell(f"{text}. It is tried until {SlotOptions.SLOT_REQUEST_TIMEOUT.key} is over")

        self._loop.post(decide)

    def _on_spark_gone(self, why: str) -> None:
        self._loop.post(lambda: self._master.abandon(why))

    def _advise(self) -> None:
        report = self._master.report
        if report.state == "CREATED" and report.slots_registered < report.slots_needed:
            self._terminal.tell(
                f"waiting for slots: {report.slots_registered} of {report.slots_needed} have registered; "
                f"{self._substrate.advice(self._graph.slots)}"
            )

    # ---- the driver's loop ---------------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._loop.post(partial(self._handle, event))

    def _order_checkpoint(self, answer: CheckpointAnswer) -> None:
        if self._is_ended:
            answer(CheckpointFailed("the job has ended"))
        else:
            self._master.handle(CheckpointRequested(answer))

    def _order_savepoint(self, order: SavepointOrder) -> None:
        if self._is_ended:
            order.answer(SavepointFailed("the job has ended"))
        else:
            self._terminal.tell(f"{'a stop' if order.stops else 'a savepoint'} was asked for")
            self._master.handle(SavepointRequested(order))

    def _order_rescale(self, order: RescaleOrder) -> None:
        if self._is_ended:
            order.answer(RescaleFailed("the job has ended"))
        else:
            self._terminal.tell(f"a rescale to {order.parallelism} was asked for")
            self._master.handle(RescaleRequested(order))

    def _handle(self, event: Event) -> None:
        if not self._is_ended:
            self._master.handle(event)

    def next_deadline_ms(self) -> float | None:
        if self._is_ended:
            return None
        deadlines = (self._master.next_deadline_ms(), self._packing.next_deadline_ms())
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        self._master.on_time(now_ms)

    def after_event(self) -> None:
        """Check, after each call, whether it has ended the job."""
        outcome = self._master.outcome
        if outcome is not None:
            self._end(outcome)
        elif not self._is_ended:
            self._packing.look(self._master.lifecycle, self._clock.monotonic_ms())

    def _ask_places(self, answered: Callable[[int | None], None]) -> None:
        """Ask for the number of places, outside of the driver's loop: a call to the JVM may take long."""

        def ask() -> None:
            places = self._substrate.task_places()
            self._loop.post(lambda: answered(places))

        threading.Thread(target=ask, name="penstock-places", daemon=True).start()

    def _on_own_error(self, error: Exception) -> None:
        self._own_errors += 1
        text = f"an error of Penstock's own in the driver: {type(error).__name__}: {error}"
        if self._own_errors == 1:
            self._loop.post(lambda: self._master.abandon(text))
        else:
            self._end(JobOutcome("FAILED", text, self._identity.directory, 0.0))

    def _end(self, outcome: JobOutcome) -> None:
        if not self._is_ended:
            self._is_ended = True
            threading.Thread(target=self._end_slots, args=(outcome,), name="penstock-end", daemon=True).start()

    def _end_slots(self, outcome: JobOutcome) -> None:
        self._advice.cancel()
        self._decommission.stop()
        self._watch.stop()
        self._release(leave=self._own_errors == 0)
        self._loop.stop()
        self._progress.stop()
        self._console.stop()
        sys.setswitchinterval(self._switch_interval_s)
        self._files.remove(outcome.releases, self._master.job_directory.is_owner)
        outcome = self._as_another_has_ended(outcome)
        state = "SUSPENDED" if outcome.is_suspended else outcome.state
        self._log.end(state, f"; resume it with -s {outcome.resume_from}" if outcome.resume_from else "")
        self._client.on_ended(outcome)
        self._hosting.end()
        atexit.unregister(self._client.leave)

    def _as_another_has_ended(self, outcome: JobOutcome) -> JobOutcome:
        """Return the job's outcome: another driver has ended the job while this one started."""
        # One that was cancelled does not wait for its storage, which may be away.
        if outcome.state != "FAILED" or self._master.lifecycle.has_run:
            return outcome
        over = look_whether_over(self._graph.name, self._configuration, driver_store(self._configuration))
        if over is None or over.ended is None:
            return outcome
        message = how_it_ended(self._graph.name, over)
        self._terminal.tell(message)
        return JobOutcome(over.ended.state, message, None, outcome.runtime_ms)

    def _release(self, leave: bool) -> None:
        """Release slots, connections and threads. `leave`: the slots were told to leave, which ends their tasks when
        their connections are closed.
        """
        self._slots.cancel_all(leave)
        self._slots.wait_cancelled()
        self._slots.join()
        self._server.stop()
        self._io.stop()
        self._work.stop()
        self._commit_work.stop()
        self._savepoint_work.stop()
        self._source_work.stop()
