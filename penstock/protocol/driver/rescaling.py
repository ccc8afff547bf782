"""Decides the rescales of a running job: one rescale after the other, in the order they were asked for.

First the slots that are still missing are submitted, while the job continues. When they are there, a checkpoint is
taken behind which the job takes no more input. From that the job continues at the new parallelism, in the processes
that it has. It need not have read all rows in flight of an earlier rescale, unless the checkpoint must not hold any. If
the checkpoint fails, the job continues as it was; if a slot or an operator fails meanwhile, the job restarts as it was,
and the rescale begins again.

The caller says what is the case (`Situation`) after each event of the job; the machine answers with what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.protocol.machine import Cell, MachineState, Story, Table, step

SLOTS_LIMIT_MS = 10_000.0
"""Limits the wait for further processes: then the job continues without them, and living ones play their slots, too."""


class RescalePhase(MachineState):
    """Lists the phases of the present rescale."""

    IDLE = "idle"
    GATHERING = "gathering slots"
    """Further processes have been submitted, and have not registered yet."""
    WAITING = "waiting"
    """The job does not run, or must first read rows that were in flight, or something else must end first."""
    CHECKPOINTING = "checkpointing"
    RESTARTING = "restarting"
    """The checkpoint is published: the job restarts from it, with other slots."""


@dataclass(frozen=True)
class Rescale:
    """Holds one order. `number` identifies it; `slots`: how many the job needs then. `is_restore`: the second step of a
    restore, before which the sources emit nothing, so that it is never given up while the job runs.
    """

    number: int
    slots: int
    is_restore: bool = False


@dataclass(frozen=True)
class Situation:
    """Describes the job. `generation`: the counter of the one that runs; None: none does. `must_drain`: it still reads
    rows that were in flight, and the checkpoint must not hold any. `processes`: how many live, spares included;
    `spares`: how many of them the job always wants to have. `may_come`: whether Spark has places for more. `may_share`:
    whether living processes may play slots that are still missing.
    """

    generation: int | None
    must_drain: bool
    slots: int
    processes: int
    spares: int = 0
    may_come: bool = True
    may_share: bool = True


# ---- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProvideSlots:
    """Submit the Spark jobs for this number of slots."""

    slots: int


@dataclass(frozen=True)
class TakeCheckpoint:
    """Take the checkpoint to continue from, if one can be triggered now; answered by `on_triggered` if so."""


@dataclass(frozen=True)
class RestartWith:
    """Restart the job from its newest checkpoint, as this rescale has ordered."""

    rescale: Rescale


@dataclass(frozen=True)
class Rescaled:
    """Report that the job runs as ordered. Durations are in ms: until the checkpoint was triggered, until it was
    published, until every subtask ran.
    """

    rescale: Rescale
    waited_ms: float
    checkpoint_ms: float
    restart_ms: float


@dataclass(frozen=True)
class RunsAlready:
    """Report that the job runs as ordered: an earlier rescale has done the same."""

    rescale: Rescale


@dataclass(frozen=True)
class NotRescaled:
    """Report that the job continues as it was. Slots that were submitted for it are released."""

    rescale: Rescale
    why: str


@dataclass(frozen=True)
class RestoreAgain:
    """Fail the job over: it is restored in two steps, and the second one has no checkpoint. Both steps follow again.
    The restart strategy limits the attempts."""

    why: str


RescalingEffect = ProvideSlots | TakeCheckpoint | RestartWith | Rescaled | RunsAlready | NotRescaled | RestoreAgain

_IDLE, _GATHERING, _WAITING, _CHECKPOINTING, _RESTARTING = RescalePhase

TABLE: Table[RescalePhase] = Table(
    "the rescale",
    {
        "ordered": {
            _IDLE: Cell("submit slots; nobody may share, and no more come: give up", (_GATHERING, _WAITING, _IDLE)),
            **{
                phase: Cell("queue; a restore: begin that, and queue this one", (phase, _GATHERING, _WAITING))
                for phase in (_GATHERING, _WAITING)
            },
            **{phase: Cell("queue", (phase,)) for phase in (_CHECKPOINTING, _RESTARTING)},
        },
        "looked": {
            _IDLE: Cell("ignore", (_IDLE,)),
            _GATHERING: Cell(
                "slots there, or the limit is over: continue, or give up if nobody may share",
                (_GATHERING, _WAITING, _IDLE),
            ),
            _WAITING: Cell("it runs: take the checkpoint", (_WAITING,)),
            _CHECKPOINTING: Cell("ignore", (_CHECKPOINTING,)),
            _RESTARTING: Cell(
                "it runs: report; begin the next", (_RESTARTING, _IDLE, _GATHERING, _WAITING)
            ),
        },
        "triggered": {_WAITING: Cell("wait for it", (_CHECKPOINTING,))},
        "published": {
            _CHECKPOINTING: Cell("restart", (_RESTARTING,)),
            **{phase: Cell("ignore", (phase,)) for phase in (_IDLE, _GATHERING, _WAITING, _RESTARTING)},
        },
        "refused": {
            _RESTARTING: Cell("give up, begin the next", (_IDLE, _GATHERING, _WAITING)),
            **{
                phase: Cell("a restore: give up, begin the next", (phase, _IDLE, _GATHERING, _WAITING))
                for phase in (_GATHERING, _WAITING)
            },
            **{phase: Cell("ignore", (phase,)) for phase in (_IDLE, _CHECKPOINTING)},
        },
        "not taken": {
            _CHECKPOINTING: Cell(
                "the job fails over: wait; a restore: fail over; else give up, begin the next",
                (_WAITING, _IDLE, _GATHERING),
            ),
        },
    },
)  # fmt: skip


class Rescaling:
    """Decides about the rescales of one job. `is_done` is asked, when the turn of a rescale has come, whether the job
    runs like that already."""

    def __init__(self, is_done: Callable[[Rescale], bool], story: Story | None = None) -> None:
        self._is_done = is_done
        self.phase = RescalePhase.IDLE
        self.story = story or Story()
        self._queue: deque[Rescale] = deque()
        self.current: Rescale | None = None
        self._generation = 0
        """The newest generation that has run."""
        self._gather_by_ms = 0.0
        self._began_ms = self._triggered_ms = self._published_ms = 0.0

    @property
    def is_idle(self) -> bool:
        return self.current is None and not self._queue

    @property
    def queued(self) -> int:
        return len(self._queue)

    def next_deadline_ms(self) -> float | None:
        return self._gather_by_ms if self.phase is RescalePhase.GATHERING else None

    def on_ordered(self, rescale: Rescale, now: Situation, now_ms: float) -> list[RescalingEffect]:
        """Begin a rescale, or queue it behind the present one. A restore in two steps precedes all rescales that have
        no checkpoint yet."""

        def begin() -> list[RescalingEffect]:
            if rescale.is_restore:
                if self.phase in (RescalePhase.GATHERING, RescalePhase.WAITING) and self.current is not None:
                    self._queue.appendleft(self.current)
                    self.current, self.phase = None, RescalePhase.IDLE
                self._queue.appendleft(rescale)
            else:
                self._queue.append(rescale)
            return self._begin_next(now, now_ms) if self.phase is RescalePhase.IDLE else []

        return self._step("ordered", f"rescale {rescale.number}", now_ms, begin)

    def look(self, now: Situation, now_ms: float) -> list[RescalingEffect]:
        """Continue, if what was waited for is there. Call it after each event of the job."""
        if self.phase is RescalePhase.IDLE and self.current is None:
            self._generation = max(self._generation, now.generation or 0)
            return []

        def decide() -> list[RescalingEffect]:
            match self.phase:
                case RescalePhase.GATHERING if self._has_slots(now) or now_ms >= self._gather_by_ms:
                    return self._proceed(now, now_ms)
                case RescalePhase.WAITING:
                    return self._take_if_running(now)
                case RescalePhase.RESTARTING if now.generation is not None and now.generation > self._generation:
                    return self._finish(now, now_ms)
            return []

        return self._step("looked", "an event", now_ms, decide)

    def on_triggered(self, now_ms: float) -> None:
        """Note that the checkpoint is under way."""

        # 12.5: the restart waits until the checkpoint is published.
        def wait() -> list[RescalingEffect]:
            self.phase, self._triggered_ms = RescalePhase.CHECKPOINTING, now_ms
            return []

        self._step("triggered", "the coordinator", now_ms, wait)

    def on_published(self, now_ms: float) -> list[RescalingEffect]:
        """Restart from the checkpoint: it is the newest now."""

        def restart() -> list[RescalingEffect]:
            if self.phase is not RescalePhase.CHECKPOINTING:
                return []
            self._published_ms = now_ms
            return self._restart()

        return self._step("published", "the log", now_ms, restart)

    def on_not_taken(self, why: str, failed_over: bool, now: Situation, now_ms: float) -> list[RescalingEffect]:
        """Continue as before: there is no such checkpoint. `failed_over`: only because the generation has ended."""

        def decide() -> list[RescalingEffect]:
            assert self.current is not None
            if failed_over or self.current.is_restore:
                self.phase = RescalePhase.WAITING
                return [] if failed_over else [RestoreAgain(why)]
            return self._give_up(why, now, now_ms)

        return self._step("not taken", "the coordinator", now_ms, decide)

    def on_refused(self, why: str, now: Situation, now_ms: float) -> list[RescalingEffect]:
        """Give up a restart, because the checkpoint cannot be restored at the ordered parallelism, or because slots
        were lost for good. The job restarts from that checkpoint in other slots than ordered. Before the second step of
        a restore, this may be another checkpoint."""

        def decide() -> list[RescalingEffect]:
            is_restore = self.current is not None and self.current.is_restore
            waits = is_restore and self.phase in (RescalePhase.GATHERING, RescalePhase.WAITING)
            return self._give_up(why, now, now_ms) if waits or self.phase is RescalePhase.RESTARTING else []

        return self._step("refused", "the JobMaster", now_ms, decide)

    def end(self, why: str) -> list[RescalingEffect]:
        """Give up all remaining rescales: the job has ended."""
        left = [*([] if self.current is None else [self.current]), *self._queue]
        self._queue.clear()
        self.current, self.phase = None, RescalePhase.IDLE
        return [NotRescaled(rescale, why) for rescale in left]

    # ---- steps --------------------------------------------------------------------------------------------------

    def _begin_next(self, now: Situation, now_ms: float) -> list[RescalingEffect]:
        done: list[RescalingEffect] = []
        # Without this: two who have asked for the same number restart the job twice.
        while self._queue and now.generation is not None and self._is_done(self._queue[0]):
            done.append(RunsAlready(self._queue.popleft()))
        if not self._queue:
            return done
        rescale = self.current = self._queue.popleft()
        self._generation = max(self._generation, now.generation or 0)
        self._began_ms = now_ms
        self._gather_by_ms = now_ms + SLOTS_LIMIT_MS
        self.phase = RescalePhase.GATHERING
        effects = done
        if rescale.slots > now.slots:
            effects.append(ProvideSlots(rescale.slots))
        return effects + self._proceed(now, now_ms) if self._has_slots(now) else effects

    def _has_slots(self, now: Situation) -> bool:
        assert self.current is not None
        more = self.current.slots > now.slots
        return not more or not now.may_come or now.processes >= self.current.slots + now.spares

    def _proceed(self, now: Situation, now_ms: float) -> list[RescalingEffect]:
        assert self.current is not None
        may_share = now.may_share or self.current.is_restore
        if not may_share and max(now.processes, now.slots) < self.current.slots:
            return self._give_up(f"it needs {self.current.slots} processes, and has {now.processes}", now, now_ms)
        self.phase = RescalePhase.WAITING
        return self._take_if_running(now)

    def _give_up(self, why: str, now: Situation, now_ms: float) -> list[RescalingEffect]:
        assert self.current is not None
        given_up, self.current, self.phase = self.current, None, RescalePhase.IDLE
        return [NotRescaled(given_up, why), *self._begin_next(now, now_ms)]

    def _take_if_running(self, now: Situation) -> list[RescalingEffect]:
        if now.generation is None or now.must_drain:
            return []
        self._generation = max(self._generation, now.generation)
        return [TakeCheckpoint()]

    def _restart(self) -> list[RescalingEffect]:
        assert self.current is not None
        self.phase = RescalePhase.RESTARTING
        return [RestartWith(self.current)]

    def _finish(self, now: Situation, now_ms: float) -> list[RescalingEffect]:
        assert self.current is not None
        done, self.current, self.phase = self.current, None, RescalePhase.IDLE
        durations = (
            self._triggered_ms - self._began_ms,
            self._published_ms - self._triggered_ms,
            now_ms - self._published_ms,
        )
        return [Rescaled(done, *durations), *self._begin_next(replace(now, slots=done.slots), now_ms)]

    def _step(
        self, event: str, cause: str, now_ms: float, decide: Callable[[], list[RescalingEffect]]
    ) -> list[RescalingEffect]:
        return step(TABLE, self.story, event, cause, now_ms, lambda: self.phase, decide)
