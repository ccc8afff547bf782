"""Decides the life of a job: slots gather, a generation is deployed, connects, restores and runs; a failure starts the
next. `TABLE` shows the phases, and what leads from one to another.

A generation is deployed when the restart's delay has passed, what to restore is known, and every slot is played by a
process that is free. A loss in any phase but the first and the last two ends the generation, and the restart strategy
decides what comes. Survivors are asked to release their subtasks (Cancel), and are free again when they have said so
(Left). Everything carries the generation, and whatever carries an old one is ignored. A process counts for a slot only
while the roster says that it plays it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

from penstock.protocol.driver.driver_effects import (
    CancelGeneration,
    CloseLink,
    Deploy,
    Dismiss,
    FailureCause,
    GenerationEnded,
    LifecycleEffect,
    Prepare,
    Restarting,
    ResubmitSlot,
    SlotsGone,
    StartRestore,
    StartRun,
    SubmitSlot,
)
from penstock.protocol.driver.patience import LATE_MS_MAX
from penstock.protocol.driver.restarts import Restarts, RestartStrategy
from penstock.protocol.driver.slots import ProcessState, RosterChange, SlotProcesses
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Register


@dataclass(frozen=True)
class LifecycleSettings:
    """Holds the settings of a job's life. `restore_timeout_ms`: how long state may take to be restored and user code to
    be opened; as long as a checkpoint may take to be written. `leave_timeout_ms`: how long to wait for slots at the end
    before their Spark jobs are cancelled. `spares`: how many processes beyond the slots are spares.
    `slot_timeout_option`: the option that has set `slot_request_timeout_ms`. `slots_min`: in how many slots the job may
    run at least; None: it runs in all.
    """

    slots: int
    slot_request_timeout_ms: float = 300_000.0
    heartbeat_timeout_ms: float = 50_000.0
    cancellation_timeout_ms: float = 180_000.0
    leave_timeout_ms: float = 10_000.0
    restore_timeout_ms: float = 600_000.0
    spares: int = 0
    slot_timeout_option: str = "slot.request.timeout"
    slots_min: int | None = None


class Phase(MachineState):
    """Lists the phases of the present generation, and of the job's end."""

    GATHERING = "gathering"
    """A restart's delay passes; what to restore is found out; slots come."""
    CONNECTING = "connecting"
    """The generation is deployed: every process connects to the others."""
    RESTORING = "restoring"
    RUNNING = "running"
    """The job processes data until the final checkpoint, a failure, or a request to cancel."""
    ENDING = "ending"
    """Every process was told to leave."""
    ENDED = "ended"


_GATHERING, _CONNECTING, _RESTORING, _RUNNING, _ENDING, _ENDED = Phase
_OVER = (_ENDING, _ENDED)
_FAILED = (_GATHERING, *_OVER)


def _stay(*phases: Phase, does: str = "ignore") -> dict[Phase, Cell[Phase]]:
    return {phase: Cell(does, (phase,)) for phase in phases}


TABLE: Table[Phase] = Table(
    "the job",
    {
        "prepared": {
            _GATHERING: Cell("all slots there: deploy", (_GATHERING, _CONNECTING)),
            **_stay(_ENDING, _ENDED),
        },
        "registered": {
            _GATHERING: Cell("all there, and prepared: deploy", (_CONNECTING, *_FAILED)),
            _CONNECTING: Cell("be a spare; in place of a deployed one: restart", (_CONNECTING, *_FAILED)),
            _RESTORING: Cell("be a spare; in place of a deployed one: restart", (_RESTORING, *_FAILED)),
            _RUNNING: Cell("be a spare; in place of a deployed one: restart", (_RUNNING, *_FAILED)),
            **_stay(_ENDING, _ENDED, does="dismiss"),
        },
        "link lost": {
            _GATHERING: Cell("a spare takes its place: deploy", (_CONNECTING, *_FAILED)),
            _CONNECTING: Cell("restart, or fail", (_CONNECTING, *_FAILED)),
            _RESTORING: Cell("restart, or fail", (_RESTORING, *_FAILED)),
            _RUNNING: Cell("restart, or fail; not if only commits are left", (_RUNNING, *_FAILED)),
            _ENDING: Cell("the last one: end", _OVER),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "connected": {
            _CONNECTING: Cell("the last one: restore", (_CONNECTING, _RESTORING)),
            **_stay(_GATHERING, _RESTORING, _RUNNING, _ENDING, _ENDED),
        },
        "restored": {
            _RESTORING: Cell("the last one: run", (_RESTORING, _RUNNING)),
            **_stay(_GATHERING, _CONNECTING, _RUNNING, _ENDING, _ENDED),
        },
        "left": {
            _GATHERING: Cell("it is free again; all free, and prepared: deploy", (_CONNECTING, *_FAILED)),
            _CONNECTING: Cell("as a lost link", (_CONNECTING, *_FAILED)),
            _RESTORING: Cell("as a lost link", (_RESTORING, *_FAILED)),
            _RUNNING: Cell("as a lost link", (_RUNNING, *_FAILED)),
            _ENDING: Cell("the last one: end", _OVER),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "failure": {
            _GATHERING: Cell("restart, or fail", (_CONNECTING, *_FAILED)),
            _CONNECTING: Cell("restart, or fail; of an older generation: ignore", (_CONNECTING, *_FAILED)),
            _RESTORING: Cell("restart, or fail; of an older generation: ignore", (_RESTORING, *_FAILED)),
            _RUNNING: Cell("restart, or fail; of an older generation: ignore", (_RUNNING, *_FAILED)),
            **_stay(_ENDING, _ENDED),
        },
        "rescaled": {
            phase: Cell("restart with other slots", (_GATHERING, _CONNECTING))
            for phase in (_GATHERING, _CONNECTING, _RESTORING, _RUNNING)
        }
        | _stay(_ENDING, _ENDED),
        "resized": {_GATHERING: Cell("have other slots; all there: deploy", (_GATHERING, _CONNECTING))},
        "finished": {
            _GATHERING: Cell("only commits were left: end", _OVER),
            _RUNNING: Cell("end", _OVER),
            **_stay(_ENDING, _ENDED),
        },
        "cancelled": {
            **{phase: Cell("end", _OVER) for phase in (_GATHERING, _CONNECTING, _RESTORING, _RUNNING)},
            **_stay(_ENDING, _ENDED),
        },
        "abandoned": {
            **{phase: Cell("end", _OVER) for phase in (_GATHERING, _CONNECTING, _RESTORING, _RUNNING)},
            **_stay(_ENDING, _ENDED),
        },
        "time": {
            _GATHERING: Cell("the delay is over: prepare; too few slots: fail", (_CONNECTING, *_FAILED)),
            _CONNECTING: Cell("too slow, or silent: restart, or fail", (_CONNECTING, *_FAILED)),
            _RESTORING: Cell("too slow, or silent: restart, or fail", (_RESTORING, *_FAILED)),
            _RUNNING: Cell("silent: restart, or fail", (_RUNNING, *_FAILED)),
            _ENDING: Cell("waited long enough: end", _OVER),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
    },
)


P = ParamSpec("P")
Method = Callable[Concatenate["Lifecycle", P], list[LifecycleEffect]]


def _stepped(event: str, cause: str = "the JobMaster") -> Callable[[Method[P]], Method[P]]:
    """Check a method of the lifecycle, which handles `event` at the time of its last argument, against the table."""

    def decorate(method: Method[P]) -> Method[P]:
        @wraps(method)
        def checked(self: Lifecycle, /, *arguments: P.args, **named: P.kwargs) -> list[LifecycleEffect]:
            decide = partial(method, self, *arguments, **named)
            now_ms: Any = arguments[-1]
            return step(TABLE, self.story, event, cause, now_ms, lambda: self.phase, decide)

        return checked

    return decorate


_MIN_PARALLELISM = "jobmanager.adaptive-scheduler.min-parallelism"


def _not_connected(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    late = ", ".join(f"{m.slot} ({m.host}:{m.data_port})" for m in processes.members_at(ProcessState.DEPLOYED))
    return (
        f"slot(s) {late} did not connect to their peers within {settings.heartbeat_timeout_ms / 1000:g} s "
        "(heartbeat.timeout). Slots must reach each other: see taskmanager.host and taskmanager.data.bind-port"
    )


def _not_restored(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    late = processes.members_at(ProcessState.CONNECTED)
    slots = ", ".join(f"{m.slot} ({m.host})" for m in late)
    names = sorted({name for m in late for name in processes.players[m.process].restoring})
    what = f", where {', '.join(map(repr, names))} did not come to an end" if names else ""
    return (
        f"slot(s) {slots} did not restore their state and open their functions within "
        f"{settings.restore_timeout_ms / 1000:g} s (execution.checkpointing.timeout){what}"
    )


def _not_prepared(settings: LifecycleSettings) -> str:
    return (
        "the checkpoint storage did not say what to restore within "
        f"{settings.slot_request_timeout_ms / 1000:g} s ({settings.slot_timeout_option})"
    )


def _too_few_slots(settings: LifecycleSettings, processes: SlotProcesses) -> str:
    came, needed = processes.roster.registered, processes.roster.slots
    missing = ", ".join(map(str, processes.roster.missing))
    lower = ", lower the parallelism (-p, env.set_parallelism)" if needed > 1 else ""
    fewest = ""
    if settings.slots_min is not None and 1 < settings.slots_min < needed:
        fewest = f", or {settings.slots_min} at least ({_MIN_PARALLELISM})"
        lower = f", lower {_MIN_PARALLELISM}"
    return (
        f"the job needs {needed} slot(s){fewest}, of which {came} registered within "
        f"{settings.slot_request_timeout_ms / 1000:g} s (missing: {missing}). A slot is a long-running Spark "
        "task: give Spark more task places (cores of the master or executors, or fewer other jobs beside this "
        f"one){lower}, or raise {settings.slot_timeout_option}."
    )


class Lifecycle:
    """Decides about one job. `jitter` returns the caller's next random number in [-1, 1]. `story`: the story of the
    machine around it.
    """

    def __init__(
        self,
        settings: LifecycleSettings,
        strategy: RestartStrategy,
        jitter: Callable[[], float],
        story: Story | None = None,
    ) -> None:
        self.settings = settings
        self.processes = SlotProcesses(
            settings.slots, settings.spares, settings.heartbeat_timeout_ms, settings.cancellation_timeout_ms
        )
        self.roster = self.processes.roster
        self.phase = Phase.GATHERING
        self.story = story or Story()
        self.restarts = Restarts(strategy, jitter)
        self.state = "CREATED"
        self._fence = 0
        self._counter = 0
        self.generation: Generation | None = None
        """The generation that is deployed now, in whatever phase."""
        self.is_prepared = False
        """True if it is known what the next generation restores."""
        self._awaits_preparation = False
        self.is_finishing = False
        self.has_run = False
        self.shares_slots = True
        """True if living processes may play the slots that are missing."""
        self.gather_by_ms = 0.0
        """The time by which all slots must be there, and the preparation done."""
        self._phase_by_ms = 0.0
        """The time by which the phase must be over: connecting, restoring, or ending."""
        self._end: tuple[str, str | None] = ("", None)
        self._suspect: str | None = None
        """The process at the other end of the lost connection by which the job has failed."""

    @property
    def verdict(self) -> str:
        """Return the job's outcome (FINISHED, CANCELED, FAILED), once it is decided; "" before."""
        return self._end[0]

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.ENDING, Phase.ENDED)

    @property
    def is_short(self) -> bool:
        """Return whether the job gathers its slots, and some are missing."""
        is_gathering = self.phase is Phase.GATHERING and not self.is_finishing
        return is_gathering and self.roster.registered < self.roster.slots

    # ---- gathering ----------------------------------------------------------------------------------------------

    def start(self, now_ms: float) -> list[LifecycleEffect]:
        self.restarts.at_ms = now_ms
        self.gather_by_ms = now_ms + self.settings.slot_request_timeout_ms
        return [Prepare(), *(SubmitSlot(slot) for slot in range(self.settings.slots + self.settings.spares))]

    @_stepped("prepared")
    def on_prepared(self, fence: int, now_ms: float) -> list[LifecycleEffect]:
        """Record that the next generation's restore point is known, and that the job's log is ours from position
        `fence` on.
        """
        if self._awaits_preparation:
            return []
        self._fence = fence
        self.is_prepared = True
        return self._deploy_if_ready(now_ms)

    @_stepped("registered", "a process")
    def on_register(self, register: Register, now_ms: float) -> list[LifecycleEffect]:
        if self.is_over:
            return [Dismiss(register.process, "the job has ended")]
        return self._follow(self.roster.register(register), now_ms) + self._deploy_if_ready(now_ms)

    @_stepped("link lost", "a process")
    def on_link_lost(self, process: str, detail: str, now_ms: float) -> list[LifecycleEffect]:
        effects, cause = self.processes.lose(process, now_ms, detail)
        if cause is not None and self.is_over and process == self._suspect:
            # Its peers have heard of its end first, but only this says how it ended.
            self._end = ("FAILED", self.restarts.verdict(cause))
        elif cause is not None:
            effects += self._fail(cause, now_ms)
        return effects + (self._end_if_gone() if self.is_over else self._deploy_if_ready(now_ms))

    def _follow(self, changes: list[RosterChange], now_ms: float) -> list[LifecycleEffect]:
        effects, cause = self.processes.follow(changes, now_ms)
        return effects + (self._fail(cause, now_ms) if cause is not None else [])

    def _deploy_if_ready(self, now_ms: float) -> list[LifecycleEffect]:
        is_due = self.is_prepared and now_ms >= self.restarts.at_ms and not self.is_finishing
        if self.phase is not Phase.GATHERING or not is_due or not self.processes.are_all_free:
            return []
        self._counter += 1
        self.generation = Generation(self._fence, self._counter)
        self.phase = Phase.CONNECTING
        self._phase_by_ms = now_ms + self.settings.heartbeat_timeout_ms
        return [Deploy(self.generation, self.processes.deploy(now_ms))]

    # ---- the phases of a generation -----------------------------------------------------------------------------

    @_stepped("connected", "a slot")
    def on_connected(self, process: str, generation: Generation, now_ms: float) -> list[LifecycleEffect]:
        if not self._advance(process, generation, Phase.CONNECTING, ProcessState.DEPLOYED, ProcessState.CONNECTED):
            return []
        self.phase = Phase.RESTORING
        self._phase_by_ms = now_ms + self.settings.restore_timeout_ms
        return [StartRestore(generation)]

    @_stepped("restored", "a slot")
    def on_restored(self, process: str, generation: Generation, now_ms: float) -> list[LifecycleEffect]:
        if not self._advance(process, generation, Phase.RESTORING, ProcessState.CONNECTED, ProcessState.RESTORED):
            return []
        self.phase = Phase.RUNNING
        self.state = "RUNNING"
        self.has_run = True
        return [StartRun(generation)]

    def _advance(
        self, process: str, generation: Generation, phase: Phase, before: ProcessState, after: ProcessState
    ) -> bool:
        """Advance a process from `before` to `after`. Return whether the processes of all slots are there now."""
        return generation == self.generation and self.phase is phase and self.processes.advance(process, before, after)

    @_stepped("left", "a slot")
    def on_left(self, process: str, generation: Generation, now_ms: float) -> list[LifecycleEffect]:
        """Note that a process has released a generation, or leaves for good."""
        if self.is_over:
            # A suspect that leaves on demand has not ended by itself.
            self._suspect = None if process == self._suspect else self._suspect
            return self.on_link_lost(process, "its process has left", now_ms)
        if self.processes.is_deployed(process) and generation == self.generation:
            return self.on_link_lost(process, "its process has left", now_ms)
        self.processes.on_left(process)
        return self._deploy_if_ready(now_ms)

    # ---- failures -----------------------------------------------------------------------------------------------

    @_stepped("failure")
    def on_failure(self, generation: Generation | None, cause: FailureCause, now_ms: float) -> list[LifecycleEffect]:
        """Handle a failure of a generation; `generation` None: of the job as a whole, whatever runs."""
        if generation is not None and generation != self.generation:
            return []
        return self._fail(cause, now_ms) + self._deploy_if_ready(now_ms)

    def provide(self, slots: int) -> list[LifecycleEffect]:
        """Submit the Spark jobs for this number of slots, before they are needed."""
        return [] if self.is_over else [SubmitSlot(seat) for seat in self.roster.provide(slots)]

    def release_unneeded(self, now_ms: float) -> list[LifecycleEffect]:
        """Release provided slots that are not needed after all."""
        return [] if self.is_over else self.processes.resize(self.roster.slots, now_ms)

    @_stepped("rescaled", "the rescale")
    def rescale(self, slots: int, cause: str, now_ms: float) -> list[LifecycleEffect]:
        """End the generation; the next one has `slots` slots. This is no failure of the job."""
        if self.is_over or self.is_finishing:
            return []
        effects = self._fail(FailureCause(cause, planned=True), now_ms)
        effects += self.provide(slots)
        return effects + self.processes.resize(slots, now_ms) + self._deploy_if_ready(now_ms)

    @_stepped("resized")
    def resize(self, slots: int, now_ms: float) -> list[LifecycleEffect]:
        """Start with `slots` slots, instead of waiting for the missing ones. The number may be larger than before: a
        restore in two steps begins with the slots of its checkpoint. Without `provide`: nobody submits the additional
        ones.
        """
        return self.provide(slots) + self.processes.resize(slots, now_ms) + self._deploy_if_ready(now_ms)

    def _fail(self, cause: FailureCause, now_ms: float) -> list[LifecycleEffect]:
        if self.is_over or self.is_finishing:
            return []
        verdict = self.restarts.on_failure(cause, now_ms)
        if verdict is not None:
            peer = None if cause.lost_peer is None else self.roster.member(cause.lost_peer)
            self._suspect = None if peer is None else peer.process
            return self._end_job("FAILED", verdict, now_ms)
        self.state = "RESTARTING"
        self.is_prepared = False
        self._awaits_preparation = True
        self.gather_by_ms = self.restarts.at_ms + self.settings.slot_request_timeout_ms
        ended = self.generation
        restarting = Restarting(cause, self.restarts.failures, self.restarts.at_ms - now_ms)
        effects: list[LifecycleEffect] = [*self._end_generation(cause.summary), restarting]
        if ended is not None:
            leaving = self.processes.cancel(now_ms + self.settings.cancellation_timeout_ms)
            effects += [CancelGeneration(ended, process) for process in leaving]
        self.phase = Phase.GATHERING
        return effects + self._prepare_if_due(now_ms)

    def _prepare_if_due(self, now_ms: float) -> list[LifecycleEffect]:
        """Ask for the preparation of a restart once the restart's delay is over.

        Without this: a restart that cannot be prepared (the storage is away) fails at once, whatever the delay, and
        uses up all attempts in an instant."""
        # 12.13: nothing is prepared before the delay is over.
        if not self._awaits_preparation or now_ms < self.restarts.at_ms:
            return []
        self._awaits_preparation = False
        return [Prepare()]

    def _end_generation(self, cause: str) -> list[LifecycleEffect]:
        if self.generation is None:
            return []
        ended, self.generation = self.generation, None
        return [GenerationEnded(ended, cause)]

    # ---- the end ------------------------------------------------------------------------------------------------

    def on_finishing(self) -> None:
        """Note that the final checkpoint is canonical: what is left to do needs no slot."""
        self.is_finishing = True

    @_stepped("finished")
    def finish(self, now_ms: float) -> list[LifecycleEffect]:
        return self._end_job("FINISHED", None, now_ms)

    @_stepped("cancelled", "a user")
    def cancel(self, now_ms: float) -> list[LifecycleEffect]:
        return self._end_job("CANCELED", None, now_ms)

    @_stepped("abandoned")
    def abandon(self, error: str, now_ms: float) -> list[LifecycleEffect]:
        """Fail the job for good, whatever the restart strategy says."""
        return self._end_job("FAILED", error, now_ms)

    def _end_job(self, state: str, error: str | None, now_ms: float) -> list[LifecycleEffect]:
        if self.is_over:
            return []
        message = {"FINISHED": "the job has finished", "CANCELED": "the job was cancelled"}.get(state, "the job failed")
        self._end = (state, error)
        self.state = {"FINISHED": "RUNNING", "CANCELED": "CANCELLING"}.get(state, "FAILING")
        self.phase = Phase.ENDING
        self._phase_by_ms = now_ms + self.settings.leave_timeout_ms
        effects = self._end_generation(message)
        effects += [Dismiss(process, message) for process in self.roster.processes]
        return effects + self._end_if_gone()

    def _end_if_gone(self, force: bool = False) -> list[LifecycleEffect]:
        if self.phase is not Phase.ENDING or (self.roster.processes and not force):
            return []
        self.phase = Phase.ENDED
        self.state = self._end[0]
        return [SlotsGone(*self._end)]

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        if self.phase is Phase.ENDED:
            return None
        if self.phase is Phase.ENDING:
            return self._phase_by_ms
        if self.is_finishing:
            return None
        deadlines = [self.processes.next_deadline_ms()]
        if self.phase is Phase.GATHERING:
            if self._awaits_preparation:
                deadlines.append(self.restarts.at_ms)
            elif self.roster.registered < self.roster.slots or not self.is_prepared:
                deadlines.append(self.gather_by_ms)
            elif self.processes.players.are_all(ProcessState.FREE):
                deadlines.append(self.restarts.at_ms)
        elif self.phase in (Phase.CONNECTING, Phase.RESTORING):
            deadlines.append(self._phase_by_ms)
        return min((d for d in deadlines if d is not None), default=None)

    @_stepped("time", "time")
    def on_time(self, now_ms: float) -> list[LifecycleEffect]:
        if self.phase is Phase.ENDED:
            return []
        if self.phase is Phase.ENDING:
            return self._end_if_gone(force=True) if self._phase_by_ms <= now_ms else []
        if self.is_finishing:
            return []
        effects: list[LifecycleEffect] = self._prepare_if_due(now_ms)
        if self.processes.is_any_late(now_ms):
            self.processes.excuse_own_pause(now_ms)
            for process in self.processes.players.processes:
                effects += self._give_up_if_late(process, now_ms)
        effects += self.processes.resubmit_missing(now_ms)
        self._excuse_own_pause(now_ms)
        if self.phase is Phase.GATHERING and now_ms >= self.gather_by_ms:
            if self.roster.missing:
                effects += self._fail(
                    FailureCause(_too_few_slots(self.settings, self.processes), restartable=self.has_run),
                    now_ms,
                )
            elif not self.is_prepared:
                effects += self._fail(FailureCause(_not_prepared(self.settings), restartable=self.has_run), now_ms)
        if self.phase is Phase.CONNECTING and now_ms >= self._phase_by_ms:
            effects += self._fail(FailureCause(_not_connected(self.settings, self.processes), slot_lost=True), now_ms)
        if self.phase is Phase.RESTORING and now_ms >= self._phase_by_ms:
            effects += self._fail(FailureCause(_not_restored(self.settings, self.processes)), now_ms)
        return effects + self._deploy_if_ready(now_ms)

    def _excuse_own_pause(self, now_ms: float) -> None:
        """Give the phase its time again if this process was suspended. Without this: processes have registered, or have
        connected, and their messages have not been processed yet, but the job fails for want of slots."""
        # 12.12: a driver that was suspended gives everybody their time again.
        if self.phase is Phase.GATHERING and now_ms - self.gather_by_ms > LATE_MS_MAX:
            self.gather_by_ms = now_ms + self.settings.slot_request_timeout_ms
        elif self.phase is Phase.CONNECTING and now_ms - self._phase_by_ms > LATE_MS_MAX:
            self._phase_by_ms = now_ms + self.settings.heartbeat_timeout_ms
        elif self.phase is Phase.RESTORING and now_ms - self._phase_by_ms > LATE_MS_MAX:
            self._phase_by_ms = now_ms + self.settings.restore_timeout_ms

    def _give_up_if_late(self, process: str, now_ms: float) -> list[LifecycleEffect]:
        why, seat = self.processes.why_late(process, now_ms), self.roster.seat_of(process)
        if why is None:
            return []
        effects: list[LifecycleEffect] = [CloseLink(process)]
        if seat is not None:
            effects.append(ResubmitSlot(seat))
        follows, cause = self.processes.lose(process, now_ms, why)
        return effects + follows + (self._fail(cause, now_ms) if cause is not None else [])
