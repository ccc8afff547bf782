"""Makes smaller plans of a plan: with parts left out, or made less. See `shrinking`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import msgspec

from penstock.common.limits import Limits
from simulation.faults.fault_plan import NO_STORE_FAULTS
from simulation.jobs.choices import Step
from simulation.plans.drawn_settings import BASE_OPTIONS, CHECKPOINT_OPTIONS
from simulation.plans.plan import Plan
from simulation.world.pace import Pace

Candidate = tuple[str, Plan]
"""A description of the reduction, and the reduced plan."""
_SIMPLEST: dict[str, Any] = {
    "keys": 1, "cost_ms": 0.02, "stalls_every": 0, "rest_every": 0, "held_rows_max": 0, "batch_size": None,
    "lateness_ms": 0, "offset_ms": 0, "timed": None, "chain_breaks": [], "hops": 0, "bounds": [0], "fan": [1, 1],
    "is_transactional": False,
}  # fmt: skip
_TIMING = {"execution.buffer-timeout.interval"}
"""The options that the rows of idle splits are written for: with other values they may be late though nothing is
wrong."""


def _changed(plan: Plan, **changes: Any) -> Plan:
    return msgspec.structs.replace(plan, **changes)


def _is_timed(plan: Plan) -> bool:
    """Return whether the plan has idle splits, whose rows come at a pace of their own."""
    return any(step.step == "scripted" for step in plan.steps)


def lists_of(plan: Plan) -> Iterator[tuple[str, list[Any], Callable[[Plan, list[Any]], Plan | None]]]:
    """Yield the lists of a plan: the name, the items, and a function that makes the plan with some items only."""
    yield "steps", list(range(len(plan.steps))), lambda now, rest: _with_steps(now, plan.steps, set(rest))
    if plan.faults.count:
        yield "faults", list(range(plan.faults.count)), lambda now, rest: _with_faults(now, count=len(rest))
        yield "kinds of faults", sorted(set(plan.faults.kinds)), _with_kinds
    kept = {*BASE_OPTIONS, *CHECKPOINT_OPTIONS} | (_TIMING if _is_timed(plan) else set())
    yield "options", [key for key in plan.options if key not in kept], lambda now, rest: _with_options(now, rest, kept)


def _with_steps(now: Plan, steps: list[Step], kept: set[int]) -> Plan | None:
    """Return the plan with some of `steps` only. A step that read a removed stream reads that stream's own input
    instead."""
    instead: dict[int, int | None] = {}
    rest: list[Step] = []
    for place, step in enumerate(steps):
        inputs = [instead.get(number, number) for number in step.inputs]
        live = [number for number in inputs if number is not None]
        if place in kept and len(live) == len(inputs):
            rest.append(msgspec.structs.replace(step, inputs=live))
        elif step.stream is not None:
            instead[step.stream] = live[0] if live else None
    needed: set[int] = set()
    for step in reversed(list(rest)):
        if step.stream is not None and step.stream not in needed:
            rest.remove(step)
        else:
            needed.update(step.inputs)
    return _changed(now, steps=rest) if rest else None


def _with_faults(now: Plan, **changes: Any) -> Plan:
    return _changed(now, faults=replace(now.faults, **changes))


def _with_kinds(now: Plan, kinds: list[str]) -> Plan | None:
    if now.faults.count and not kinds:
        return None
    return _with_faults(now, kinds=tuple(kind for kind in now.faults.kinds if kind in kinds))


def _with_options(now: Plan, keys: list[str], kept: set[str]) -> Plan:
    return _changed(now, options={key: v for key, v in now.options.items() if key in keys or key in kept})


def single_reductions(plan: Plan) -> Iterator[Candidate]:
    """Yield the reductions by one element, the most promising first. Each has a name of its own."""
    yield from _less_around(plan)
    yield from _less_faults(plan)
    for place, step in enumerate(plan.steps):
        for what, choices in _less_of_a_step(step):
            steps = list(plan.steps)
            steps[place] = msgspec.structs.replace(step, choices=choices)
            yield f"{_name(step, place)}: {what}", _changed(plan, steps=steps)
    if not _is_timed(plan):
        yield from _less_pace(plan)


def _name(step: Step, place: int) -> str:
    return f"{step.step} {place if step.stream is None else step.stream}"


def _less_around(plan: Plan) -> Iterator[Candidate]:
    if plan.places is not None:
        yield "a place for every task", _changed(plan, places=None)
    if plan.graph_changes_seed is not None:
        yield "no changes of the graph", _changed(plan, graph_changes_seed=None)
    if plan.interleaves:
        yield "no messages within a step", _changed(plan, interleaves=False)
    if plan.is_parallel and not _is_timed(plan):
        yield "one process at a time", _changed(plan, is_parallel=False)
    if not plan.chaining:
        yield "chained operators", _changed(plan, chaining=True)


def _less_faults(plan: Plan) -> Iterator[Candidate]:
    faults = plan.faults
    if faults.aimed is not None:
        yield "no aimed faults", _with_faults(plan, aimed=None)
    for name in ("speculation_share", "retry_share", "recovering_share", "rescale_share"):
        if getattr(faults, name):
            yield f"{name} 0", _with_faults(plan, **{name: 0.0})
    for name in ("store", "outage"):
        if getattr(faults, name) != NO_STORE_FAULTS:
            yield f"no faults of the {name}", _with_faults(plan, **{name: NO_STORE_FAULTS})
    if not faults.count and faults.kinds:
        yield "no kinds of faults", _with_faults(plan, kinds=())
    if len(set(faults.kinds)) < len(faults.kinds):
        yield "each kind of fault once", _with_faults(plan, kinds=tuple(dict.fromkeys(faults.kinds)))


def _less_of_a_step(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    choices = step.choices
    rows = choices.get("rows", 1)
    for fewer in sorted({1, 2, 5, rows // 4, rows // 2, rows * 3 // 4, rows - 1}):
        if 0 < fewer < rows:
            changes = {"rows": fewer}
            if "bounds" in choices:
                changes["bounds"] = [bound for bound in choices["bounds"] if bound < fewer]
            yield f"rows {fewer}", choices | changes
    for fewer in range(1, choices.get("parallelism", 1)):
        yield f"parallelism {fewer}", choices | {"parallelism": fewer}
    if "scripts" in choices:
        yield from _less_scripts(choices)
    for name, simplest in _SIMPLEST.items():
        if name in choices and choices[name] != simplest:
            yield f"{name} {simplest}", choices | {name: simplest}
    for name, inner in choices.items():
        if isinstance(inner, dict):
            for what, changed in _less_of_a_step(Step(step=name, choices=inner)):
                yield f"{name}: {what}", choices | {name: changed}


def _less_scripts(choices: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    scripts = choices["scripts"]
    if len(scripts) > 1:
        yield f"{len(scripts) - 1} scripts", choices | {"scripts": scripts[:-1]}
    for place, script in enumerate(scripts):
        half = script["steps"][: len(script["steps"]) // 2]
        if half:
            fewer = [*scripts[:place], script | {"steps": half}, *scripts[place + 1 :]]
            yield f"script {place}: {len(half)} steps", choices | {"scripts": fewer}


def _less_pace(plan: Plan) -> Iterator[Candidate]:
    pace, plain = plan.pace, Pace(scale=Limits())
    if pace != plain:
        yield "the usual pace and scale", _changed(plan, pace=plain)
    if pace.scale != Limits():
        yield "the usual scale", _changed(plan, pace=replace(pace, scale=Limits()))
    for field in fields(pace):
        usual = getattr(plain, field.name)
        if field.name != "scale" and getattr(pace, field.name) != usual:
            yield f"the usual {field.name}", _changed(plan, pace=replace(pace, **{field.name: usual}))
    for field in fields(pace.scale):
        if getattr(pace.scale, field.name) is not None:
            scale = replace(pace.scale, **{field.name: None})
            yield f"the usual {field.name}", _changed(plan, pace=replace(pace, scale=scale))
