"""Runs the loop of a subtask: a step function over a mailbox.

`step(now_ms)` handles all mail, then does one bounded piece of work, and returns when it wants to be called again.
Control waits for one slice, never for a buffer; a slice never waits for output space. A thread drives the steps in a
slot, and a scheduler drives them, in any order, in the simulation.
"""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum, auto
from typing import NamedTuple

from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.subtask.effects import BarrierReached, WindowsClosed
from penstock.protocol.values.elements import WATERMARK_MAX_MS, EndOfData, Watermark
from penstock.protocol.values.frames import CreditLimit, CreditWanted, Data, Event
from penstock.protocol.values.messages import (
    CheckpointEnded,
    EndSources,
    LimitWatermark,
    ReachedEndOfData,
    SplitsAssigned,
    StartRun,
    SubtaskStatus,
)
from penstock.runtime.checkpoint.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.input.input_gate import InputGate
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.process.compute_lock import COMPUTE_LOCK
from penstock.runtime.subtask.active_clock import ActiveClock
from penstock.runtime.subtask.call_work import CallWork
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.feeds import GateFeed, Portion, SourceFeed
from penstock.runtime.subtask.parking import Parking, Unpark
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.snapshot_source import SnapshotSource
from penstock.runtime.subtask.turns import Turns
from penstock.runtime.subtask.work import Work


class Phase(Enum):
    """Lists the phases of a subtask in its generation. It answers mail and barriers in all phases."""

    OPENED = auto()
    """The other subtasks of the job are being restored."""
    RUNNING = auto()
    INPUT_ENDED = auto()
    """The input has ended; the last timers and windows fire."""
    FINISHED = auto()
    """User code has seen the end of data, and so have the consumers."""


class StepResult(NamedTuple):
    """Holds a step's result. `wait_ms`: call again after that long, or when there is mail; 0 at once, None only when
    there is mail.
    """

    worked: bool
    wait_ms: float | None
    backpressured: bool


class Subtask:
    """Runs a subtask that is ready to work; `SubtaskOpening` builds it. `deployed`: its mailbox, channels and machine.
    `parts`: feed, work, output, event time and state. The JobMaster hears of it while the job drains, and when it has
    finished, with its last counts.
    """

    def __init__(
        self,
        deployed: DeployedSubtask,
        parts: SnapshotSource,
        checkpoints: SubtaskCheckpoints,
        parking: Parking,
        shared: SlotResources,
    ) -> None:
        self.id, self.vertex = deployed.id, deployed.vertex
        self.mailbox, self.gate, self.partitions = deployed.mailbox, deployed.gate, deployed.partitions
        self.deployed, self.parts = deployed, parts
        self.feed: SourceFeed | GateFeed = parts.feed
        self.work: Work = parts.work
        self._calls = parts.work if isinstance(parts.work, CallWork) else None
        self.output: ChainOutput = parts.output
        self.event_time: SubtaskClock = parts.event_time
        self.checkpoints, self.parking = checkpoints, parking
        self.phase = Phase.OPENED
        self._draining, self._machine = deployed.draining, deployed.machine
        self._shared, self._clock, self._send = shared, shared.clock, shared.send
        self._compute_lock = COMPUTE_LOCK.held() if deployed.vertex.columnar else nullcontext()
        self._pace, self._turns = ActiveClock(shared.clock), Turns(len(self.gate.channels))
        self._bounds = BoundUpdates(self.gate, self.output, self._pace, shared.settings.bound_period_ms)

    # ---- the step -----------------------------------------------------------------------------------------------

    def step(self, now_ms: float) -> StepResult:
        """Handle all mail, then do one piece of work, and send what may leave."""
        if isinstance(self.feed, SourceFeed):
            self._pace.resume()
        self._take_mail()
        self._handle_time(now_ms)
        if self.parking.lasts(now_ms):
            return self._pause(now_ms)
        with self._compute_lock:
            ready_in_ms = self._work()
        if ready_in_ms == 0:
            self.output.flush(self._clock.monotonic_ms(), idle=False)
            self.checkpoints.look_at_outputs()
            return StepResult(True, 0, False)
        return self._wait(ready_in_ms)

    def _handle_time(self, now_ms: float) -> None:
        """Do the work that is due at any time: alignment timeouts, sizes of windows and queues, credit."""
        if (deadline_ms := self._machine.deadline_ms) is not None and now_ms >= deadline_ms:
            self.checkpoints.on_time(now_ms)
        self._bounds.on_time(now_ms)
        self.gate.grant()
        if self.parking.is_due:
            self.parking.begin(self._clock.monotonic_ms())

    def _wait(self, ready_in_ms: float | None) -> StepResult:
        """Send all that may leave, as there was nothing to work on; return when to be called again, at the latest."""
        self._report_empty()
        output, had_room = self.output, self.output.has_room()
        flush_at_ms = output.flush(self._clock.monotonic_ms(), idle=True)
        self.checkpoints.look_at_outputs()
        if not (has_room := output.has_room()):
            self.event_time.pause()
        elif not had_room:
            return StepResult(False, 0, False)  # flushing made room, for lack of which the work may have stopped
        now_ms, wait_ms = self._clock.monotonic_ms(), ready_in_ms
        for at_ms in (flush_at_ms, self._machine.deadline_ms):
            if at_ms is not None and (wait_ms is None or at_ms - now_ms < wait_ms):
                wait_ms = max(0.0, at_ms - now_ms)
        backpressured = self.phase is not Phase.OPENED and not has_room
        waits_for_answers = self._calls is not None and self._calls.is_full
        if not (backpressured or waits_for_answers) and (isinstance(self.feed, SourceFeed) or self.gate.expects_rows):
            self._pace.pause()
        else:
            self._pace.resume()
        return StepResult(False, wait_ms, backpressured)

    def _take_mail(self) -> None:
        checkpoints, take = self.checkpoints, self.mailbox.take
        channels, index_of = self.gate.channels, self.gate.index_of
        # 1.3: all mail before any work, so no row behind an urgent barrier is taken first.
        for _ in range(len(self.mailbox.mail)):  # more may come meanwhile, again and again
            match take():
                case Data() | Event() as element:
                    at = index_of[element.channel]
                    if closed := channels[at].receive(element):
                        checkpoints.handle(WindowsClosed(at, closed))
                case CreditLimit() | CreditWanted() as credit:
                    self.deployed.on_credit(credit)
                case CheckpointEnded(_, checkpoint_id, aborted, commits, confirmed) as ended:
                    checkpoints.handle(ended)
                    if commits and not aborted:
                        self.output.on_published(checkpoint_id, confirmed)
                    self.parking.end(checkpoint_id)
                case Unpark(checkpoint_id):
                    self.parking.end(checkpoint_id)
                case SplitsAssigned(_, _, splits, no_more):
                    self.feed.add_splits(splits, no_more)
                case LimitWatermark(watermark_max_ms=watermark_max_ms):
                    self.feed.limit_watermark(watermark_max_ms)
                case EndSources():
                    self.feed.end_early()
                case StartRun():
                    self.phase = Phase.RUNNING
                case decided:  # barriers, triggers, releases
                    checkpoints.handle(decided)

    def _pause(self, now_ms: float) -> StepResult:
        """Run no user code for a moment; what is due leaves all the same."""
        self._pace.pause()
        self.event_time.pause()
        flush_at_ms = self.output.flush(now_ms, idle=False)
        self.checkpoints.look_at_outputs()
        due_ms = (self.parking.until_ms, flush_at_ms, self._machine.deadline_ms)
        return StepResult(False, max(0.1, min(at_ms for at_ms in due_ms if at_ms is not None) - now_ms), False)

    # ---- work ---------------------------------------------------------------------------------------------------

    def _work(self) -> float | None:
        """Do one piece of work. Returns 0 after it, else in how many ms there may be some (None: only after mail)."""
        work, output, event_time = self.work, self.output, self.event_time
        if self.phase is Phase.OPENED:
            return None
        # 10.3: a held subtask reads nothing, and does not become idle.
        if self._draining.held or self._machine.is_suspended:
            event_time.pause()
            return 0 if self._take_barrier(past_layers=True) else None
        if work.unfinished:
            return self._resume()
        # 4.4: no slice begins without room; one that has begun never waits for it.
        if self.phase is Phase.FINISHED or not output.has_room():
            # 9.1: who has finished answers barriers still.
            return 0 if self._take_barrier() else None
        if event_time.time.behind or work.resumes_firing:
            return self._advance_time()
        if self.phase is Phase.INPUT_ENDED:
            self._finish()
            return 0
        if work.holds_due_rows:
            work.flush_held()
            return 0
        if self._calls is not None:
            if self._calls.look_at_answers():
                return 0
            if self._calls.is_full:
                # A slow service holds up rows, and neither barriers nor calls that are due.
                return 0 if self._take_barrier(past_layers=True) else self._with_deadlines(None)
        if self._draining.is_over and self._turns.act_on_time(self._act_on_time):
            return 0
        return self._take_input()

    def _act_on_time(self) -> bool:
        return self.event_time.tick() or self.work.fire_processing_timers()

    def _resume(self) -> float | None:
        """Continue the unfinished slice: first the row that a snapshot waits for."""
        if self.checkpoints.waiting_for_row:
            self.checkpoints.resume()
        if self.work.unfinished:
            self.work.resume()
        return 0 if self.output.has_room() or not self.work.unfinished else None

    def _take_input(self) -> float | None:
        """Begin a slice of the next rows, or handle the barrier if one comes next."""
        portion = self.feed.take(self.work.slice_rows)
        if isinstance(portion, Portion):
            self._pace.resume()
            self.work.start(portion)
            return 0
        if isinstance(portion, BarrierReached):
            self.checkpoints.handle(portion)
            self._report_empty()  # barriers may follow each other without a pause
            if not self.gate.queued_bytes:
                self.event_time.on_quiet()
            return 0
        if self.feed.ended and not self._waits_for_answers:
            self.phase = Phase.INPUT_ENDED
            return 0
        return portion if portion == 0 else self._with_deadlines(portion)

    @property
    def _waits_for_answers(self) -> bool:
        return self._calls is not None and self._calls.holds_rows

    def _take_barrier(self, past_layers: bool = False) -> bool:
        """Handle a barrier that has nothing before it. Barriers need no room, and come after the end of data, too."""
        if (reached := self.gate.poll_barrier(past_layers)) is not None:
            self.checkpoints.handle(reached)
        return reached is not None

    def _advance_time(self) -> float:
        """Fire due timers and windows in bounded groups, with nothing but control between them; then send the
        watermark."""
        if self._turns.take_barrier(self._take_barrier) or self.work.fire_due():
            return 0
        self.event_time.emit_watermark()
        return 0

    def _with_deadlines(self, ready_in_ms: float | None) -> float | None:
        """Return the earliest deadline of timers, held rows and generators. While the job drains they wait."""
        due = [ready_in_ms, self.event_time.on_quiet(), self.work.next_deadline_in_ms()]
        waits = [wait_ms for wait_ms in due[: None if self._draining.is_over else 1] if wait_ms is not None]
        if (call_in_ms := self.call_due_in_ms()) is not None:
            waits.append(call_in_ms)
        return max(0.1, min(waits)) if waits else None

    def call_due_in_ms(self) -> float | None:
        """Return the time until a call is over time or to be made again, in ms; None: there is none."""
        return None if self._calls is None else self._calls.due_in_ms()

    def _report_empty(self) -> None:
        """Report to the JobMaster, while the job drains, each time that nothing but barriers is left to do here."""
        if self._draining.is_over:
            return
        # 3.3b: held rows leave before the report that counts them.
        self.work.flush_held()
        for partition in self.partitions:
            partition.flush_held()
        busy = self.work.unfinished or self.event_time.time.behind or self.work.resumes_firing
        idle = not (busy or self._waits_for_answers)
        emitted = {partition.edge.index: sum(partition.emitted) for partition in self.partitions}
        if report := self._draining.report(self.gate.applied_by_edge(), emitted, self.gate.layers_are_read, idle):
            self._send(report)

    def _finish(self) -> None:
        """Close user code at the end of data, and emit that end to the consumers."""
        self.work.flush_held()
        self.parts.checkpointed.end()
        self.work.close()
        self.output.finish()
        self.phase = Phase.FINISHED
        self.output.emit_event(Watermark(WATERMARK_MAX_MS))
        self.output.emit_event(EndOfData())
        last_counts = self.status(busy_share=0.0, backpressured_share=0.0, step_ms_max=0.0)
        self._send(ReachedEndOfData(self._shared.generation, self._shared.slot, self.id, last_counts))

    # ---- what can be seen ---------------------------------------------------------------------------------------

    @property
    def rows_in(self) -> int:
        """Return the number of rows that the chain has processed."""
        return self.work.applied.rows

    def status(self, busy_share: float, backpressured_share: float, step_ms_max: float) -> SubtaskStatus:
        """Return the counters as they are. Called from any thread."""
        emitted_ms = self.event_time.time.emitted_ms
        return SubtaskStatus(
            vertex=self.id.vertex,
            subtask=self.id.subtask,
            rows_in=self.rows_in,
            rows_out=self.output.rows,
            bytes_in=sum(channel.received_bytes for channel in self.gate.channels),
            bytes_out=self.output.bytes_out,
            busy_share=busy_share,
            backpressured_share=backpressured_share,
            queued_bytes=self.gate.queued_bytes + self.output.queued_bytes,
            overdraft_bytes=self.output.overdraft_bytes,
            step_ms_max=step_ms_max,
            late_rows=self.work.late_rows,
            skipped_rows=self.feed.skipped_rows,
            layers=len(self.gate.layers),
            lag_rows=self.feed.lag_rows,
            watermark_ms=None if emitted_ms == WATERMARK_MIN_MS else emitted_ms,
            metrics=self.parts.metrics(),
            accumulators=self.parts.user_metrics.totals(),
        )

    def close(self) -> None:
        """Release user code's resources. After this the subtask is not stepped again."""
        try:
            self.work.close()
        finally:
            self.parts.revoke()
            self.feed.close()
            self.output.close()


class BoundUpdates:
    """Updates the bounds of a gate and an output every `period_ms`, by rates of active time (`pace`)."""

    def __init__(self, gate: InputGate, output: ChainOutput, pace: ActiveClock, period_ms: float) -> None:
        self._gate = gate
        self._output = output
        self._pace = pace
        self._period_ms = period_ms
        self._due_ms = 0.0

    def on_time(self, now_ms: float) -> None:
        if now_ms < self._due_ms:
            return
        # A bound that has just grown is probably still too small, so it is measured again sooner.
        active_ms = self._pace.now_ms()
        grown = self._gate.resize(active_ms) | self._output.resize(active_ms)
        self._due_ms = now_ms + max(self._period_ms / (4 if grown else 1), 1.0)
