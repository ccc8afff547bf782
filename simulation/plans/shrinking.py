"""Makes the plan of a failure smaller while the same violation still happens.

Parts are left out by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002)
until no single one can be. What chance does during the run changes with the plan, so a smaller plan is tried with
several seeds of the world.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from simulation.jobs.choices import PlanError
from simulation.plans.plan import Plan
from simulation.plans.reductions import Candidate, lists_of, single_reductions
from simulation.plans.running import Verdict, build, declare, run_plan
from simulation.world.pace import Bounds

T = TypeVar("T")

RUNS_MAX = 600
SECONDS_MAX = 300.0
WORLD_SEEDS = ((1, 2), tuple(range(1, 16)))
"""The seeds of worlds that are tried besides the one that the failure was found with: first few, and many once few
leave nothing out any more. Without the many: a failure that occurs in one of ten worlds is lost."""
_WORDS_OF_A_VIOLATION = 6
_EVENTS_TIMES = 4
"""A smaller run is given up after this multiple of the events of the failure."""


class _SpentError(Exception):
    """Says that no run, or no time, is left."""


@dataclass
class Shrunk:
    """Holds a plan that has become smaller. `violation`: what it reports. `runs`: how many it has taken. `is_smallest`:
    nothing else can be left out; else the runs or the time were over."""

    plan: Plan
    violation: str
    runs: int
    is_smallest: bool
    removed: list[str] = field(default_factory=list)
    """Names what the smaller plan has less of, a line each."""


def first_words(violation: str) -> str:
    """Return the text by which two violations count as the same: first words without numbers, and the error that was
    raised."""
    lines = violation.strip().splitlines()
    words = re.findall(r"[A-Za-z_']+", lines[0])[:_WORDS_OF_A_VIOLATION]
    if len(lines) > 1:
        words += lines[-1].split()[:1]
    return " ".join(words)


def shrink(
    plan: Plan, report: Callable[[str], None] = lambda line: None, runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX, world_seeds: Sequence[Sequence[int]] = WORLD_SEEDS,
    run: Callable[..., Verdict] = run_plan,
) -> Shrunk:  # fmt: skip
    """Return the smallest plan found whose run reports the first violation of `plan`. `report` is called for each step.

    Raises: PlanError: the plan cannot be run, or violates nothing."""
    verdict = run(plan)
    if not verdict.violations:
        raise PlanError("the plan violates nothing: there is nothing to make smaller")
    shrinker = _Shrinker(plan, verdict, report, runs_max, time.monotonic() + seconds_max, run)
    try:
        shrinker.run_rounds(world_seeds)
        is_smallest = True
    except _SpentError:
        is_smallest = False
    small = shrinker.plan
    told = small.told if small.told.startswith("smaller: ") else f"smaller: {small.told}"
    removed = list(differences(plan, small))
    return Shrunk(msgspec.structs.replace(small, told=told), shrinker.violation, shrinker.runs, is_smallest, removed)


class _Shrinker:
    """Tries smaller plans. `plan`: the smallest so far. `wanted`: the first words of the violation."""

    def __init__(
        self, plan: Plan, verdict: Verdict, report: Callable[[str], None], runs_max: int, end_s: float,
        run: Callable[..., Verdict],
    ) -> None:  # fmt: skip
        self.plan = plan
        self.violation = verdict.violations[0]
        self.wanted = first_words(self.violation)
        self.runs = 1
        self._report = report
        self._runs_max = runs_max
        self._end_s = end_s
        self._run = run
        self._tried: set[bytes] = set()
        self._world_seeds: Sequence[int] = ()
        # A run that hangs is recognized by how long it lasts.
        is_hung = self.violation.startswith("no end after")
        self._bounds = Bounds() if is_hung else Bounds(events_max=max(5_000, _EVENTS_TIMES * verdict.events))

    def run_rounds(self, world_seeds: Sequence[Sequence[int]]) -> None:
        """Leave out parts until a round changes nothing."""
        for self._world_seeds in world_seeds:
            self._tried.clear()
            before = None
            while before != self.plan:
                before = self.plan
                self._run_round()

    def _run_round(self) -> None:
        for name, items, without in lists_of(self.plan):
            # Later lists see what earlier ones have left.
            self._minimize(name, items, without)
        for what, reduced in self._singles():
            self._try(what, reduced)

    def _singles(self) -> Iterator[Candidate]:
        """Yield one reduction after the other, each of the plan that the reductions before it have left."""
        tried: set[str] = set()
        while True:
            fresh = next((c for c in single_reductions(self.plan) if c[0] not in tried), None)
            if fresh is None:
                return
            tried.add(fresh[0])
            yield fresh

    def _minimize(self, name: str, items: list[T], leaving: Callable[[Plan, list[T]], Plan | None]) -> None:
        """Leave out all items, then halves, quarters, ... single ones, as delta debugging does."""
        chunks = 1
        while items:
            size = max(1, -(-len(items) // chunks))
            for start in range(0, len(items), size):
                rest = items[:start] + items[start + size :]
                reduced = leaving(self.plan, rest)
                if reduced is not None and self._try(f"{name}: {len(items)} -> {len(rest)}", reduced):
                    items, chunks = rest, max(chunks - 1, 1)
                    break
            else:
                if size == 1:
                    return
                chunks = min(2 * chunks, len(items))

    def _try(self, what: str, candidate: Plan) -> bool:
        """Make the candidate the smallest plan, if its run reports the violation."""
        try:
            candidate = msgspec.structs.replace(candidate, steps=declare(candidate, is_strict=False).steps)
            build(candidate)
        except PlanError:
            return False
        key = candidate.encode()
        if candidate == self.plan or key in self._tried:
            return False
        self._tried.add(key)
        for world_seed in dict.fromkeys((candidate.world_seed, *self._world_seeds)):
            if self.runs >= self._runs_max or time.monotonic() > self._end_s:
                raise _SpentError
            self.runs += 1
            tried = msgspec.structs.replace(candidate, world_seed=world_seed)
            for violation in self._run(tried, bounds=self._bounds).violations:
                if first_words(violation) == self.wanted:
                    self.plan, self.violation = tried, violation
                    self._report(f"run {self.runs}: {what}")
                    return True
        return False


def differences(before: Plan, after: Plan) -> Iterator[str]:
    """Yield the differences of the smaller plan."""
    for name, old, new in (
        ("steps", len(before.steps), len(after.steps)),
        ("rows", before.rows, after.rows),
        ("subtasks", before.subtasks, after.subtasks),
        ("faults", before.faults.count, after.faults.count),
        ("kinds of faults", len(set(before.faults.kinds)), len(set(after.faults.kinds))),
    ):
        if old != new:
            yield f"{name}: {old} -> {new}"
    gone = [f"{key}={value}" for key, value in before.options.items() if key not in after.options]
    if gone:
        yield f"options: {len(before.options)} -> {len(after.options)}, without {', '.join(gone)}"
    for name in ("places", "graph_changes_seed", "interleaves", "is_parallel", "chaining"):
        if getattr(before, name) != getattr(after, name):
            yield f"{name}: {getattr(before, name)} -> {getattr(after, name)}"
    for part in ("faults", "pace"):
        for name, old in msgspec.to_builtins(getattr(before, part)).items():
            new = msgspec.to_builtins(getattr(after, part))[name]
            if old != new and name not in ("count", "kinds"):
                yield f"{part}.{name}: {_changes(old, new)}"


def _changes(old: Any, new: Any) -> str:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{old} -> {new}"
    return ", ".join(f"{name} {value} -> {new[name]}" for name, value in old.items() if new[name] != value)
