"""Holds the phases of a job's life, and which event may lead from one to another."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from penstock.protocol.machine import Cell, MachineState, Table


class Phase(MachineState):
    """Lists how far the present generation can be, or the end of the job."""

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


class _HasPhase(Protocol):
    """Declares what `stepped` needs of the lifecycle."""

    phase: Phase


L = TypeVar("L", bound=_HasPhase)
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[L, P], R]


def stepped(event: str) -> Callable[[Method[L, P, R]], Method[L, P, R]]:
    """Check a method of the lifecycle, which handles `event`, against the table."""

    def decorate(method: Method[L, P, R]) -> Method[L, P, R]:
        @wraps(method)
        def checked(self: L, /, *arguments: P.args, **named: P.kwargs) -> R:
            before = self.phase
            TABLE.check(before, event)
            effects = method(self, *arguments, **named)
            TABLE.follow(before, event, self.phase)
            return effects

        return checked

    return decorate
