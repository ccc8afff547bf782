"""Records the choices of a job's declaration, so that the job is data: drawn by chance once, repeated ever after.

A method marked with `step` declares one step of a job. All that it leaves open it asks `choose` for, by a name. The
choices are drawn, or read from the step that is repeated; they are recorded in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from random import Random
from typing import Any, TypeVar, cast

import msgspec

from simulation.jobs.streams import Stream

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class PlanError(Exception):
    """Signals that this version of the simulation cannot run a plan. The text names the part of the plan."""


class Step(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Describes one step of a job. `stream`: the number of the stream that it declares, None for a sink. `inputs`: the
    numbers of the streams that it reads. `choices`: its arguments by name; a step within a step has a dict of its own.
    """

    step: str
    stream: int | None = None
    inputs: list[int] = []
    choices: dict[str, Any] = {}


def unknown_name(said: Any, understood: Any, path: str = "") -> str | None:
    """Return the path of a name in nested dicts that nobody has understood."""
    if isinstance(said, dict) and isinstance(understood, dict):
        for name, value in said.items():
            if name not in understood:
                return f"{path}{name}"
            if found := unknown_name(value, understood[name], f"{path}{name}."):
                return found
    return None


STEPS: dict[str, Callable[..., Stream | None]] = {}
"""Every step by name: a function of the builder and the streams that it reads."""


class NoChance(Random):
    """Raise if anything is drawn, because a plan names everything."""

    def random(self) -> float:
        raise PlanError("it leaves something to chance")

    def getrandbits(self, k: int, /) -> int:
        raise PlanError("it leaves something to chance")


class _Scope:
    """Collects the choices of one step. `given`: those to repeat; None: they are drawn."""

    def __init__(self, given: dict[str, Any] | None) -> None:
        self.given = given
        self.chosen: dict[str, Any] = {}
        self.asked = 0
        """The number of calls of `happens`."""


class Choosing:
    """Declares steps. `random` draws what is not said."""

    random: Random

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._streams: list[Stream] = []
        self._scope = _Scope(None)
        """The scope outside of all steps: its choices are drawn, and not recorded."""
        self._depth = 0
        self.is_recorded = True
        """True if the steps say all of the job."""

    @property
    def is_drawing(self) -> bool:
        """Return whether the present step is drawn, not repeated."""
        return self._scope.given is None

    def choose(self, name: str, draw: Callable[[], T], said: T | None = None, absent: T | None = None) -> T:
        """Return the argument of the present step with that name. `said`: what the caller asks for, not to be drawn.
        `absent`: what a plan means that is older than the argument; None: no plan is."""
        scope = self._scope
        if scope.given is None:
            chosen = draw() if said is None else said
        elif name in scope.given:
            chosen = scope.given[name]
        elif absent is not None:
            chosen = absent
        else:
            raise PlanError(f"it says no {name!r}")
        scope.chosen[name] = chosen
        return chosen

    def replace_choice(self, name: str, value: T) -> T:
        """Record and return another value for what was chosen."""
        self._scope.chosen[name] = value
        return value

    def happens(self, name: str, share: float) -> bool:
        """Return whether something happens that a step asks for several times. The plan lists the times."""
        scope = self._scope
        place, scope.asked = scope.asked, scope.asked + 1
        if scope.given is None:
            happens = self.random.random() < share
        else:
            happens = place in scope.given.get(name, ())
        if happens:
            scope.chosen.setdefault(name, []).append(place)
        return happens

    def becomes(self, name: str) -> None:
        """Make the step that is drawn another one, of which nothing has been chosen."""
        self._scope.chosen.clear()
        self._scope.asked = 0
        self.steps[-1].step = name

    def number_of(self, stream: Stream) -> int:
        """Return the number of a declared stream; -1 for one that no step has declared."""
        return next((n for n, known in enumerate(self._streams) if known is stream), -1)

    @contextmanager
    def scope(self, given: dict[str, Any] | None) -> Iterator[_Scope]:
        """Collect choices for a step, or for one within the present step, until the end of the block."""
        before, self._scope = self._scope, _Scope(given)
        self._depth += 1
        try:
            yield self._scope
        finally:
            self._scope = before
            self._depth -= 1

    def repeat(self, step: Step, streams: dict[int, Stream], is_strict: bool = True) -> None:
        """Declare a step of a plan. `streams`: those declared so far, by their numbers in the plan. `is_strict`: the
        step says nothing that it does not need.

        Raises: PlanError: the step is unknown, or says too little or something impossible."""
        try:
            if step.step not in STEPS:
                raise PlanError(f"there is no such step in this version, only {', '.join(sorted(STEPS))}")
            missing = [number for number in step.inputs if number not in streams]
            if missing:
                raise PlanError(f"it reads stream {missing[0]}, which no step before it declares")
            self._given = step.choices
            stream = STEPS[step.step](self, *(streams[number] for number in step.inputs))
            unknown = unknown_name(step.choices, self.steps[-1].choices) if is_strict else None
            if unknown is not None:
                raise PlanError(f"nothing in it is called {unknown!r}")
        except Exception as error:
            told = str(error) if isinstance(error, PlanError) else f"{type(error).__name__}: {error}"
            number = "" if step.stream is None else f" of stream {step.stream}"
            raise PlanError(f"step {step.step!r}{number} of the plan cannot be declared: {told}") from error
        if (stream is None) != (step.stream is None):
            raise PlanError(f"step {step.step!r} {'has no' if stream is None else 'needs a'} number of a stream")
        if stream is not None and step.stream is not None:
            streams[step.stream] = stream

    _given: dict[str, Any] | None = None
    """The choices for the step that is declared next, where it is repeated."""

    def declare_step(self, name: str, declare: Callable[..., Any], arguments: Any, said: dict[str, Any]) -> Any:
        if self._depth:
            outer = self._scope
            given = None if outer.given is None else outer.given.get(name)
            if outer.given is not None and given is None:
                raise PlanError(f"it says nothing of the {name!r} within it")
            with self.scope(given) as inner:
                outer.chosen[name] = inner.chosen
                return declare(self, *arguments, **said)
        given, self._given = self._given, None
        inputs = [self.number_of(a) for a in arguments if isinstance(a, Stream)]
        with self.scope(given) as scope:
            recorded = Step(step=name, inputs=inputs, choices=scope.chosen)
            self.steps.append(recorded)
            self.is_recorded &= -1 not in inputs
            made = declare(self, *arguments, **said)
        if isinstance(made, Stream):
            recorded.stream = len(self._streams)
            self._streams.append(made)
        return made


def step(declare: F) -> F:
    """Mark a function (builder, streams...) that declares a step."""
    name = declare.__name__

    @wraps(declare)
    def recorded(job: Choosing, *arguments: Any, **said: Any) -> Any:
        return job.declare_step(name, declare, arguments, said)

    STEPS[name] = recorded
    return cast("F", recorded)
