"""Decides the number of slots of an adaptive job: all that it wants, or fewer if Spark has no place for more.

A job that gathers its slots, and lacks some, starts with fewer once it has had enough of them for `settle_ms`. One slot
is enough, unless the user asks for more (`least`). While the job runs, the submissions of the missing slots stay. As
soon as Spark has places for them, their processes register, and the job is rescaled: at once if no slot is missing any
more, else after `stabilize_ms`. Between two rescales lies `cooldown_ms` at least.

The caller passes the job's `Resources` after each event of the job; the machine returns effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.protocol.machine import Cell, MachineState, Story, Table, step

RETRY_MS_MIN = 1_000.0
"""Limits how soon a rescale that has failed is tried again."""


class AdaptivePhase(MachineState):
    """Lists the job's reasons to wait."""

    GATHERING = "gathering"
    """The job does not run. No slot is missing, or there are too few processes to start with."""
    SETTLING = "settling"
    """Slots are missing, and those that are there are enough to run."""
    STARTING = "starting"
    """The job starts in fewer slots."""
    SHARING = "sharing"
    """The job cannot start in fewer slots: living processes play the missing ones, too."""
    RUNNING = "running"
    STABILIZING = "stabilizing"
    """The job runs, and there are more processes than slots, but not all that it wants."""
    RESCALING = "rescaling"
    """A rescale to more slots has been ordered."""


@dataclass(frozen=True)
class AdaptiveSettings:
    """Holds the times, in ms. `settle_ms`: the time for which the present slots must have been enough before the job
    starts with them. `stabilize_ms`: the time for which a running job waits for further processes after the first new
    one. `cooldown_ms`: the least time between two rescales. `may_raise` False: the job has no checkpoints, so it is not
    rescaled. `least`: the least number of slots to run in, unless the job wants fewer.
    """

    settle_ms: float
    stabilize_ms: float
    cooldown_ms: float
    may_raise: bool = True
    least: int = 1


@dataclass(frozen=True)
class Resources:
    """Describes the job's resources. `generation`: the counter of the running generation; None: none runs. `is_short`:
    the job gathers its slots, and some are missing; `is_prepared`: nothing else is missing. `slots`: the number of
    slots now, missing ones included; `wanted`: the number that the job wants. `processes`: the number of processes with
    a place of their own. `may_come`: whether Spark may have places for more. `gather_by_ms`: when gathering ends.
    `is_rescaled`: somebody has ordered a rescale that is not over.
    """

    generation: int | None
    is_short: bool
    is_prepared: bool
    slots: int
    wanted: int
    processes: int
    may_come: bool = True
    gather_by_ms: float = float("inf")
    is_rescaled: bool = False


# ---- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lower:
    """Start in `slots` slots, instead of waiting; answered by `on_not_lowered` if the job cannot."""

    slots: int
    waited_ms: float


@dataclass(frozen=True)
class Lowered:
    """Report that the job runs in fewer slots. Durations are in ms: until it was decided, until every subtask ran."""

    waited_ms: float
    restart_ms: float


@dataclass(frozen=True)
class Raise:
    """Order a rescale to `slots` slots; answered by `on_raised`."""

    slots: int


AdaptiveEffect = Lower | Lowered | Raise

_GATHERING, _SETTLING, _STARTING, _SHARING, _RUNNING, _STABILIZING, _RESCALING = AdaptivePhase
_RUN = (_RUNNING, _STABILIZING, _RESCALING)
_SHORT = (_GATHERING, _SETTLING, _STARTING)

TABLE: Table[AdaptivePhase] = Table(
    "the adaptive scheduler",
    {
        "short": {
            **{phase: Cell("enough are there: settle; nobody else can come: lower", _SHORT) for phase in
               (_GATHERING, _STARTING, *_RUN)},
            _SETTLING: Cell("prepared, and the time is over: lower", _SHORT),
            _SHARING: Cell("wait for those who share", (_SHARING,)),
        },
        "complete": {
            _GATHERING: Cell("ignore", (_GATHERING,)),
            _SETTLING: Cell("all have come", (_GATHERING,)),
            _STARTING: Cell("ignore", (_STARTING,)),
            _SHARING: Cell("ignore", (_SHARING,)),
            **{phase: Cell("it restarts", (_GATHERING,)) for phase in _RUN},
        },
        "running": {
            phase: Cell("more processes than slots: raise, or wait", _RUN) for phase in AdaptivePhase
        },
        "not lowered": {_STARTING: Cell("let processes share", (_SHARING,))},
        "raised": {
            _RESCALING: Cell("rest", (_RUNNING,)),
            **{phase: Cell("note it", (phase,)) for phase in AdaptivePhase if phase is not _RESCALING},
        },
    },
)  # fmt: skip


class AdaptiveScaling:
    """Decides about one job."""

    def __init__(self, settings: AdaptiveSettings, story: Story | None = None) -> None:
        self.phase = AdaptivePhase.GATHERING
        self.story = story or Story()
        self.may_share = False
        """Says whether living processes may play the slots that are missing: the job needs more than there are."""
        self._settings = settings
        self._seen: Resources | None = None
        self._deadline_ms: float | None = None
        self._settling_since_ms = 0.0
        self._more_since_ms: float | None = None
        self._rests_until_ms = 0.0
        self._ran_in: int | None = None
        """The slots of the newest generation that has run."""
        self._lowered: tuple[float, float] | None = None
        """Holds how long the job had waited, and when it was lowered."""
        self._is_ordered = False

    def next_deadline_ms(self) -> float | None:
        return self._deadline_ms

    def look(self, now: Resources, now_ms: float) -> list[AdaptiveEffect]:
        """Return the effects of the job's present resources. Call it after each event of the job, and at the
        deadline."""
        if now == self._seen and (self._deadline_ms is None or now_ms < self._deadline_ms):
            return []
        self._seen, self._deadline_ms = now, None
        if now.generation is not None:
            return self._step("running", now_ms, lambda: self._running(now, now_ms))
        if now.is_short:
            return self._step("short", now_ms, lambda: self._short(now, now_ms))
        return self._step("complete", now_ms, self._complete)

    def on_not_lowered(self, now_ms: float) -> list[AdaptiveEffect]:
        """Let processes share: what the job restarts from cannot be restored in fewer slots."""

        def share() -> list[AdaptiveEffect]:
            self.phase, self.may_share = AdaptivePhase.SHARING, True
            self._lowered = None
            return []

        return self._step("not lowered", now_ms, share)

    def on_raised(self, is_done: bool, now_ms: float) -> list[AdaptiveEffect]:
        """Note that the rescale is over; `is_done` False: the job continues as it was."""

        def rest() -> list[AdaptiveEffect]:
            self._is_ordered, self._seen = False, None
            if not is_done:
                self._rests_until_ms = now_ms + max(self._settings.cooldown_ms, RETRY_MS_MIN)
            if self.phase is AdaptivePhase.RESCALING:
                self.phase = AdaptivePhase.RUNNING
            return []

        return self._step("raised", now_ms, rest)

    # ---- steps --------------------------------------------------------------------------------------------------

    def _short(self, now: Resources, now_ms: float) -> list[AdaptiveEffect]:
        if self.phase is AdaptivePhase.SHARING:
            return []
        slots = min(now.processes, now.wanted)
        is_enough = slots >= min(self._settings.least, now.wanted)
        self.may_share = is_enough and slots >= now.slots
        if not is_enough or slots >= now.slots:
            self.phase = AdaptivePhase.GATHERING
            return []
        if self.phase is not AdaptivePhase.SETTLING:
            self.phase, self._settling_since_ms = AdaptivePhase.SETTLING, now_ms
        if not now.is_prepared:
            return []
        by_ms = min(self._settling_since_ms + self._settings.settle_ms, now.gather_by_ms)
        # 12.8: processes that may still come are waited for, but not for ever.
        if now.may_come and now_ms < by_ms:
            self._deadline_ms = by_ms
            return []
        self.phase = AdaptivePhase.STARTING
        self._lowered = now_ms - self._settling_since_ms, now_ms
        return [Lower(slots, self._lowered[0])]

    def _complete(self) -> list[AdaptiveEffect]:
        if self.phase not in (AdaptivePhase.STARTING, AdaptivePhase.SHARING):
            self.phase = AdaptivePhase.GATHERING
        return []

    def _running(self, now: Resources, now_ms: float) -> list[AdaptiveEffect]:
        effects: list[AdaptiveEffect] = []
        if self._lowered is not None:
            waited_ms, at_ms = self._lowered
            effects.append(Lowered(waited_ms, now_ms - at_ms))
            self._lowered = None
        if now.slots != self._ran_in:
            if self._ran_in is not None or now.slots < now.wanted:
                self._rests_until_ms = now_ms + self._settings.cooldown_ms
            self._ran_in = now.slots
        return effects + self._raise_if_due(now, now_ms)

    def _raise_if_due(self, now: Resources, now_ms: float) -> list[AdaptiveEffect]:
        self.phase = AdaptivePhase.RESCALING if self._is_ordered else AdaptivePhase.RUNNING
        slots = min(now.processes, now.wanted)
        if self._is_ordered or slots <= now.slots or not self._settings.may_raise:
            self._more_since_ms = None
            return []
        if self._more_since_ms is None:
            self._more_since_ms = now_ms
        if now.is_rescaled:
            return []
        if now_ms < self._rests_until_ms:
            self._deadline_ms = self._rests_until_ms
            return []
        by_ms = self._more_since_ms + self._settings.stabilize_ms
        if slots < now.wanted and now_ms < by_ms:
            self.phase, self._deadline_ms = AdaptivePhase.STABILIZING, by_ms
            return []
        self.phase, self._is_ordered, self._more_since_ms = AdaptivePhase.RESCALING, True, None
        return [Raise(slots)]

    def _step(self, event: str, now_ms: float, decide: Callable[[], list[AdaptiveEffect]]) -> list[AdaptiveEffect]:
        return step(TABLE, self.story, event, "the JobMaster", now_ms, lambda: self.phase, decide)
