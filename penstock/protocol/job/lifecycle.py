"""Decides the life of a job: slots gather, a generation is deployed, connects, restores and runs; a failure starts the
next. `lifecycle_table.py` shows the phases, and what leads from one to another.

A generation is deployed when the restart's delay has passed, what to restore is known, and every slot is played by a
process that is free. A loss in any phase but the first and the last two ends the generation, and the restart strategy
decides what comes. Survivors are asked to let go of their subtasks (Cancel), and are free again when they have said so
(Left). Everything carries the generation, and whatever carries an old one is ignored. A process counts for a slot only
while the roster says that it plays it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.protocol.job.lifecycle_effects import (
    CancelGeneration,
    CloseLink,
    Deploy,
    Dismiss,
    Effect,
    FailureCause,
    GenerationEnded,
    Prepare,
    Restarting,
    ResubmitSlot,
    SlotsGone,
    StartRestore,
    StartRun,
    SubmitSlot,
    TellStandBy,
)
from penstock.protocol.job.lifecycle_table import Phase, stepped
from penstock.protocol.job.players import DEPLOYED_PARTS, Part, Players
from penstock.protocol.job.restart_strategy import Failure, RestartStrategy
from penstock.protocol.job.slot_roster import Dismissed, Joined, RosterChange, SlotLost, SlotRoster, StandsBy
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Register


@dataclass(frozen=True)
class LifecycleSettings:
    """`restore_timeout_ms`: how long state may take to be restored and user code to be opened; as long as a checkpoint
    may take to be written. `leave_timeout_ms`: how long slots are waited for at the end before their Spark jobs are
    cancelled. `spares`: how many processes beyond the slots stand by."""

    slots: int
    slot_request_timeout_ms: float = 300_000.0
    heartbeat_timeout_ms: float = 50_000.0
    cancellation_timeout_ms: float = 180_000.0
    leave_timeout_ms: float = 10_000.0
    restore_timeout_ms: float = 600_000.0
    spares: int = 0


class Lifecycle:
    """`jitter` returns the caller's next random number in [-1, 1]."""

    def __init__(self, settings: LifecycleSettings, strategy: RestartStrategy, jitter: Callable[[], float]) -> None:
        self.settings = settings
        self.roster = SlotRoster(settings.slots, settings.spares)
        self.phase = Phase.GATHERING
        self.failures = 0
        self.restarts = 0
        self.state = "CREATED"
        self._strategy = strategy
        self._jitter = jitter
        self._fence = 0
        self._counter = 0
        self._generation: Generation | None = None
        self._players = Players(settings.heartbeat_timeout_ms)
        self._prepared = False
        self._awaits_preparation = False
        self._progressed = False
        self._is_finishing = False
        self._has_run = False
        self._restart_at_ms = 0.0
        self._gather_by_ms = 0.0
        self._connect_by_ms = 0.0
        self._restore_by_ms = 0.0
        self._missing_since_ms: dict[int, float] = {}
        """By slot, the oldest first."""
        self._leave_by_ms: float | None = None
        self._end: tuple[str, str | None] = ("", None)

    @property
    def generation(self) -> Generation | None:
        """The one that is deployed now, in whatever phase."""
        return self._generation

    @property
    def has_run(self) -> bool:
        return self._has_run

    @property
    def is_finishing(self) -> bool:
        return self._is_finishing

    @property
    def verdict(self) -> str:
        """Return how the job ends (FINISHED, CANCELED, FAILED), once that is decided; "" before."""
        return self._end[0]

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.ENDING, Phase.ENDED)

    # ---- gathering ----------------------------------------------------------------------------------------------

    def start(self, now_ms: float) -> list[Effect]:
        self._restart_at_ms = now_ms
        self._gather_by_ms = now_ms + self.settings.slot_request_timeout_ms
        return [Prepare(), *(SubmitSlot(slot) for slot in range(self.settings.slots + self.settings.spares))]

    @stepped("prepared")
    def on_prepared(self, fence: int, now_ms: float) -> list[Effect]:
        """What the next generation restores is known, and that the job's log is ours from position `fence` on."""
        if self._awaits_preparation:
            return []
        self._fence = fence
        self._prepared = True
        return self._deploy_if_ready(now_ms)

    @stepped("registered")
    def on_register(self, register: Register, now_ms: float) -> list[Effect]:
        if self.is_over:
            return [Dismiss(register.process, "the job has ended")]
        return self._follow(self.roster.register(register), now_ms) + self._deploy_if_ready(now_ms)

    @stepped("link lost")
    def on_link_lost(self, process: str, detail: str, now_ms: float) -> list[Effect]:
        effects = self._follow(self.roster.lose(process), now_ms, detail)
        return effects + (self._end_if_gone() if self.is_over else self._deploy_if_ready(now_ms))

    def _follow(self, changes: list[RosterChange], now_ms: float, detail: str = "") -> list[Effect]:
        effects: list[Effect] = []
        cause: FailureCause | None = None
        for change in changes:
            if isinstance(change, StandsBy):
                effects.append(TellStandBy(change.process))
            elif isinstance(change, Dismissed):
                effects.append(Dismiss(change.process, change.reason))
                if self._was_deployed(change.process):
                    summary = f"{change.reason}: its process was replaced"
                    cause = FailureCause(summary, slot_lost=True, planned=change.planned)
            elif isinstance(change, SlotLost):
                self._missing_since_ms[change.slot] = now_ms
                if self._was_deployed(change.process):
                    why = f": {detail}" if detail else ""
                    cause = FailureCause(f"slot {change.slot} was lost{why}", slot_lost=True)
            elif isinstance(change, Joined):
                self._missing_since_ms.pop(change.slot, None)
                self._players.join(change.process, now_ms)
        return effects + (self._fail(cause, now_ms) if cause is not None else [])

    def _was_deployed(self, process: str) -> bool:
        player = self._players.drop(process)
        return player is not None and player.part in DEPLOYED_PARTS

    def _deploy_if_ready(self, now_ms: float) -> list[Effect]:
        if self.phase is not Phase.GATHERING or not self._prepared or now_ms < self._restart_at_ms:
            return []
        if self._is_finishing:
            return []
        if self.roster.registered < self.settings.slots or not self._players.are_all(Part.FREE):
            return []
        members = self.roster.members()
        self._counter += 1
        self._generation = Generation(self._fence, self._counter)
        self.phase = Phase.CONNECTING
        self._connect_by_ms = now_ms + self.settings.heartbeat_timeout_ms
        for member in members:
            player = self._players[member.process]
            player.heard_ms, player.restoring = now_ms, ()
            self._players.move(player, Part.DEPLOYED)
        return [Deploy(self._generation, tuple(members))]

    # ---- the phases of a generation -----------------------------------------------------------------------------

    @stepped("connected")
    def on_connected(self, process: str, generation: Generation, now_ms: float) -> list[Effect]:
        if not self._advance(process, generation, Phase.CONNECTING, Part.DEPLOYED, Part.CONNECTED):
            return []
        self.phase = Phase.RESTORING
        self._restore_by_ms = now_ms + self.settings.restore_timeout_ms
        return [StartRestore(generation)]

    @stepped("restored")
    def on_restored(self, process: str, generation: Generation, now_ms: float) -> list[Effect]:
        if not self._advance(process, generation, Phase.RESTORING, Part.CONNECTED, Part.RESTORED):
            return []
        self.phase = Phase.RUNNING
        self.state = "RUNNING"
        self._has_run = True
        return [StartRun(generation)]

    def _advance(self, process: str, generation: Generation, phase: Phase, before: Part, after: Part) -> bool:
        """Whether every slot's process has now come that far."""
        player = self._players.get(process)
        if generation != self._generation or self.phase is not phase or player is None or player.part is not before:
            return False
        self._players.move(player, after)
        return self._players.are_all(after)

    @stepped("left")
    def on_left(self, process: str, generation: Generation, now_ms: float) -> list[Effect]:
        """A process has let go of a generation, or leaves for good."""
        player = self._players.get(process)
        if self.is_over or (player is not None and player.part in DEPLOYED_PARTS and generation == self._generation):
            return self.on_link_lost(process, "its process has left", now_ms)
        if player is not None and player.part is Part.LEAVING:
            self._players.move(player, Part.FREE)
        return self._deploy_if_ready(now_ms)

    def on_checkpoint_completed(self) -> None:
        self._progressed = True

    # ---- failures -----------------------------------------------------------------------------------------------

    @stepped("failure")
    def on_failure(self, generation: Generation | None, cause: FailureCause, now_ms: float) -> list[Effect]:
        """Something of a generation failed; `generation` None: the job as a whole, whatever runs."""
        if generation is not None and generation != self._generation:
            return []
        return self._fail(cause, now_ms) + self._deploy_if_ready(now_ms)

    def _fail(self, cause: FailureCause, now_ms: float) -> list[Effect]:
        if self.is_over or self._is_finishing:
            return []
        delay_ms: float | None = 0.0
        if not cause.planned:
            self.failures += 1
            if not cause.restartable:
                return self._end_job("FAILED", self._verdict(cause, "a restart cannot mend it"), now_ms)
            failure = Failure(now_ms, self._jitter(), cause.slot_lost, self._progressed)
            delay_ms = self._strategy.on_failure(failure)
            self._progressed = False
        if delay_ms is None:
            return self._end_job("FAILED", self._verdict(cause, self._strategy.describe()), now_ms)
        self.restarts += 1
        self.state = "RESTARTING"
        self._prepared = False
        self._awaits_preparation = True
        self._restart_at_ms = max(now_ms + delay_ms, self._restart_at_ms)
        delay_ms = self._restart_at_ms - now_ms
        self._gather_by_ms = self._restart_at_ms + self.settings.slot_request_timeout_ms
        ended = self._generation
        effects: list[Effect] = [*self._end_generation(cause.summary), Restarting(cause, self.failures, delay_ms)]
        for member in self.roster.members():
            player = self._players[member.process]
            if ended is not None and player.part in DEPLOYED_PARTS:
                self._players.move(player, Part.LEAVING, now_ms + self.settings.cancellation_timeout_ms)
                effects.append(CancelGeneration(ended, member.process))
        self.phase = Phase.GATHERING
        return effects + self._prepare_if_due(now_ms)

    def _prepare_if_due(self, now_ms: float) -> list[Effect]:
        """Ask for the preparation of a restart once the restart's delay is over.

        Without this: a restart that cannot be prepared (the storage is away) fails at once, whatever the delay, and
        uses up all attempts in an instant."""
        if not self._awaits_preparation or now_ms < self._restart_at_ms:
            return []
        self._awaits_preparation = False
        return [Prepare()]

    def _verdict(self, cause: FailureCause, why: str) -> str:
        count = "the first failure" if self.failures == 1 else f"failure {self.failures}"
        return f"{cause.text()}\nThe job has failed: this was {count} of it, and {why}."

    def _end_generation(self, cause: str) -> list[Effect]:
        if self._generation is None:
            return []
        ended, self._generation = self._generation, None
        return [GenerationEnded(ended, cause)]

    # ---- the end ------------------------------------------------------------------------------------------------

    def on_finishing(self) -> None:
        """The final checkpoint is canonical: what is left to do needs no slot."""
        self._is_finishing = True

    @stepped("finished")
    def finish(self, now_ms: float) -> list[Effect]:
        return self._end_job("FINISHED", None, now_ms)

    @stepped("cancelled")
    def cancel(self, now_ms: float) -> list[Effect]:
        return self._end_job("CANCELED", None, now_ms)

    @stepped("abandoned")
    def abandon(self, error: str, now_ms: float) -> list[Effect]:
        """The job fails for good, whatever the restart strategy says."""
        return self._end_job("FAILED", error, now_ms)

    def _end_job(self, state: str, error: str | None, now_ms: float) -> list[Effect]:
        if self.is_over:
            return []
        message = {"FINISHED": "the job has finished", "CANCELED": "the job was cancelled"}.get(state, "the job failed")
        self._end = (state, error)
        self.state = {"FINISHED": "RUNNING", "CANCELED": "CANCELLING"}.get(state, "FAILING")
        self.phase = Phase.ENDING
        self._leave_by_ms = now_ms + self.settings.leave_timeout_ms
        effects = self._end_generation(message)
        effects += [Dismiss(process, message) for process in self.roster.processes]
        return effects + self._end_if_gone()

    def _end_if_gone(self, force: bool = False) -> list[Effect]:
        if self.phase is not Phase.ENDING or (self.roster.processes and not force):
            return []
        self.phase = Phase.ENDED
        self._leave_by_ms = None
        self.state = self._end[0]
        return [SlotsGone(*self._end)]

    # ---- time ---------------------------------------------------------------------------------------------------

    def on_heard(self, process: str, now_ms: float) -> None:
        """Any message of a slot is a sign of life."""
        player = self._players.get(process)
        if player is not None:
            player.heard_ms = now_ms

    def on_restoring(self, process: str, names: list[str]) -> None:
        """A process says which of its subtasks are not restored yet."""
        player = self._players.get(process)
        if player is not None:
            player.restoring = tuple(names)

    def next_deadline_ms(self) -> float | None:
        if self.phase is Phase.ENDED:
            return None
        if self.phase is Phase.ENDING:
            return self._leave_by_ms
        if self._is_finishing:
            return None
        deadlines = [self._players.next_deadline_ms()]
        oldest_ms = next(iter(self._missing_since_ms.values()), None)
        if oldest_ms is not None:
            deadlines.append(oldest_ms + self.settings.heartbeat_timeout_ms)
        if self.phase is Phase.GATHERING:
            if self._awaits_preparation:
                deadlines.append(self._restart_at_ms)
            elif self.roster.registered < self.settings.slots or not self._prepared:
                deadlines.append(self._gather_by_ms)
            elif self._players.are_all(Part.FREE):
                deadlines.append(self._restart_at_ms)
        elif self.phase is Phase.CONNECTING:
            deadlines.append(self._connect_by_ms)
        elif self.phase is Phase.RESTORING:
            deadlines.append(self._restore_by_ms)
        return min((d for d in deadlines if d is not None), default=None)

    @stepped("time")
    def on_time(self, now_ms: float) -> list[Effect]:
        if self.phase is Phase.ENDED:
            return []
        if self.phase is Phase.ENDING:
            gone = self._leave_by_ms is not None and self._leave_by_ms <= now_ms
            return self._end_if_gone(force=True) if gone else []
        if self._is_finishing:
            return []
        effects: list[Effect] = self._prepare_if_due(now_ms)
        due_ms = self._players.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._excuse_own_pause(now_ms)
            for member in self.roster.members():
                effects += self._check(member, now_ms)
        effects += self._resubmit_missing(now_ms)
        if self.phase is Phase.GATHERING and now_ms >= self._gather_by_ms:
            if self.roster.missing:
                effects += self._fail(FailureCause(self._too_few_slots(), restartable=self._has_run), now_ms)
            elif not self._prepared:
                effects += self._fail(FailureCause(self._not_prepared(), restartable=self._has_run), now_ms)
        if self.phase is Phase.CONNECTING and now_ms >= self._connect_by_ms:
            effects += self._fail(FailureCause(self._not_connected(), slot_lost=True), now_ms)
        if self.phase is Phase.RESTORING and now_ms >= self._restore_by_ms:
            effects += self._fail(FailureCause(self._not_restored()), now_ms)
        return effects + self._deploy_if_ready(now_ms)

    def _resubmit_missing(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for slot, since_ms in list(self._missing_since_ms.items()):
            if now_ms - since_ms < self.settings.heartbeat_timeout_ms:
                break
            del self._missing_since_ms[slot]
            self._missing_since_ms[slot] = now_ms
            empty = self.roster.empty_seats
            effects += [ResubmitSlot(seat) for seat in ([slot] if slot in empty else empty)]
        return effects

    def _excuse_own_pause(self, now_ms: float) -> None:
        """If this process was suspended, queued heartbeats have not been processed yet: restart all heartbeat timers
        instead of declaring every slot lost."""
        self._players.excuse(now_ms, self.settings.heartbeat_timeout_ms / 2)

    def _check(self, member: Register, now_ms: float) -> list[Effect]:
        """Gives up a process that has been silent, or has not let go, for too long."""
        player = self._players[member.process]
        silent_ms = now_ms - player.heard_ms
        if player.part is not Part.FREE and silent_ms >= self.settings.heartbeat_timeout_ms:
            detail = f"no heartbeat for {silent_ms / 1000:g} s (heartbeat.timeout)"
        elif player.leave_by_ms is not None and now_ms >= player.leave_by_ms:
            limit_s = self.settings.cancellation_timeout_ms / 1000
            detail = f"it did not let go of its subtasks within {limit_s:g} s (task.cancellation.timeout)"
        else:
            return []
        seat = self.roster.seat_of(member.process)
        effects: list[Effect] = [CloseLink(member.process), ResubmitSlot(member.slot if seat is None else seat)]
        return effects + self._follow(self.roster.lose(member.process), now_ms, detail)

    def _not_connected(self) -> str:
        members = self.roster.members()
        late = ", ".join(
            f"{m.slot} ({m.host}:{m.data_port})" for m in members if self._players[m.process].part is Part.DEPLOYED
        )
        return (
            f"slot(s) {late} did not connect to their peers within {self.settings.heartbeat_timeout_ms / 1000:g} s "
            "(heartbeat.timeout). Slots must reach each other: see taskmanager.host and taskmanager.data.bind-port"
        )

    def _not_restored(self) -> str:
        late = [m for m in self.roster.members() if self._players[m.process].part is Part.CONNECTED]
        slots = ", ".join(f"{m.slot} ({m.host})" for m in late)
        names = sorted({name for m in late for name in self._players[m.process].restoring})
        what = f", where {', '.join(map(repr, names))} did not come to an end" if names else ""
        return (
            f"slot(s) {slots} did not restore their state and open their functions within "
            f"{self.settings.restore_timeout_ms / 1000:g} s (execution.checkpointing.timeout){what}"
        )

    def _not_prepared(self) -> str:
        return (
            "the checkpoint storage did not say what to restore within "
            f"{self.settings.slot_request_timeout_ms / 1000:g} s (slot.request.timeout)"
        )

    def _too_few_slots(self) -> str:
        came, needed = self.roster.registered, self.settings.slots
        missing = ", ".join(map(str, self.roster.missing))
        lower = ", lower the parallelism (-p, env.set_parallelism)" if needed > 1 else ""
        return (
            f"the job needs {needed} slot(s), of which {came} registered within "
            f"{self.settings.slot_request_timeout_ms / 1000:g} s (missing: {missing}). A slot is a long-running Spark "
            "task: give Spark more task places (cores of the master or executors, or fewer other jobs beside this "
            f"one){lower}, or raise slot.request.timeout."
        )
