"""A failure is made smaller for as long as it stays the same failure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.protocol.channel import ends as channel
from simulation.jobs.choices import PlanError, Step
from simulation.plans.drawing import plan_of
from simulation.plans.plan import Plan, decode_plan
from simulation.plans.reductions import lists_of, single_reductions
from simulation.plans.running import Verdict, declare, plan_as_read, run_plan
from simulation.plans.shrinking import first_words, shrink
from tests.simulation.proofs import breaks

LARGE = 5
"""So many steps the plan of a random failure has at the least."""


@breaks("2.6")
@pytest.fixture
def blocked_channels_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)


def large_failures(count: int) -> list[Plan]:
    plans = (plan_as_read(seed) for seed in range(7, 200))
    large = (plan for plan in plans if len(plan.steps) >= LARGE and plan.faults.count >= 2)
    return [plan for plan, _ in zip((plan for plan in large if run_plan(plan).violations), range(count))]


@pytest.mark.usefixtures("blocked_channels_are_read")
def test_a_random_failure_becomes_a_few_rows_on_one_edge() -> None:
    for plan in large_failures(2):
        told: list[str] = []
        shrunk = shrink(plan, told.append, runs_max=150, world_seeds=[(1, 2)])
        small = shrunk.plan
        assert shrunk.runs <= 150
        assert len(small.steps) <= 4 and small.rows <= 5 and small.faults.count <= 1, shrunk.removed
        assert len(small.options) < len(plan.options) - 10
        assert small.places is None and small.graph_changes_seed is None
        assert len(told) > 5 and any(line.startswith("steps: ") for line in shrunk.removed)
        # What was written fails in the same way, without anything of the run before.
        again = run_plan(decode_plan(small.encode(), "small")).violations
        assert first_words(again[0]) == first_words(shrunk.violation) == first_words(run_plan(plan).violations[0])


@pytest.mark.usefixtures("blocked_channels_are_read")
def test_it_keeps_to_its_runs_and_its_time() -> None:
    (plan,) = large_failures(1)
    shrunk = shrink(plan, runs_max=4)
    assert shrunk.runs == 4 and not shrunk.is_smallest
    shrunk = shrink(plan, seconds_max=0.0)
    assert shrunk.runs == 1 and not shrunk.is_smallest and not shrunk.removed


def test_another_violation_is_not_the_same() -> None:
    """A plan that fails otherwise without its second step is not smaller; one that fails the same way is."""
    plan = plan_of(9)
    kept = plan.steps[1].step

    def run(candidate: Plan, bounds: Any = None) -> Verdict:
        has_step = any(step.step == kept for step in candidate.steps)
        return Verdict(0, ["sink 3: 12 rows lost" if has_step else "the watermark fell"])

    shrunk = shrink(plan, run=run)
    assert shrunk.is_smallest
    assert kept in [step.step for step in shrunk.plan.steps]
    assert shrunk.plan.rows <= plan.rows and not shrunk.plan.faults.count


def test_what_few_worlds_see_is_made_smaller_by_many() -> None:
    plan = plan_of(9)

    def run(candidate: Plan, bounds: Any = None) -> Verdict:
        is_seen = candidate == plan or candidate.world_seed == 9
        return Verdict(0, ["sink 3: 12 rows lost"] if is_seen else [])

    assert shrink(plan, run=run, world_seeds=[(1, 2)]).removed == []
    shrunk = shrink(plan, run=run, runs_max=10_000)
    assert shrunk.is_smallest and shrunk.plan.world_seed == 9
    assert len(shrunk.plan.steps) == 2 and shrunk.plan.rows == 1


def test_what_violates_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="violates nothing"):
        shrink(plan_as_read(8))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("sink 0: 3 rows lost [(0, 4)]", "sink 11: 1 rows lost [(1, 2)]", True),
        ("sink 0: 3 rows lost [(0, 4)]", "count 0: the watermark fell", False),
        ("raised\nTraceback\n  x\nKeyError: 3", "raised\nTraceback\n  y\nKeyError: 4", True),
        ("raised\nTraceback\n  x\nKeyError: 3", "raised\nTraceback\n  x\nValueError: 3", False),
    ],
)
def test_violations_are_the_same_by_their_first_words_without_numbers(one: str, other: str, is_same: bool) -> None:
    assert (first_words(one) == first_words(other)) is is_same


def test_who_reads_a_stream_that_is_left_out_reads_what_it_was_made_of() -> None:
    choices: dict[str, Any] = {}
    steps = [
        Step(step="source", stream=0, choices=choices), Step(step="source", stream=1, choices=choices),
        Step(step="keep", stream=2, inputs=[0]), Step(step="union", stream=3, inputs=[1, 2]),
        Step(step="sink", inputs=[3]),
    ]  # fmt: skip
    plan = msgspec.structs.replace(plan_of(8), steps=steps)
    leaving = next(leaving for name, _, leaving in lists_of(plan) if name == "steps")

    def left(*places: int) -> list[tuple[str, list[int]]]:
        reduced = leaving(plan, list(places))
        return [] if reduced is None else [(step.step, step.inputs) for step in reduced.steps]

    assert left(0, 1, 3, 4) == [("source", []), ("source", []), ("union", [1, 0]), ("sink", [3])]
    assert left(0, 1, 2, 4) == [("source", []), ("sink", [1])]
    assert left(0, 2, 3, 4) == [("source", []), ("keep", [0]), ("sink", [2])]
    assert left(0, 1, 2, 3) == left() == []


def test_every_single_reduction_changes_the_plan_and_most_can_be_declared() -> None:
    reduced = declared = 0
    for seed in range(60):
        plan = plan_of(seed)
        names = [name for name, _ in single_reductions(plan)]
        assert len(set(names)) == len(names)
        for name, candidate in single_reductions(plan):
            assert candidate != plan, name
            reduced += 1
            try:
                declare(candidate, is_strict=False)
                declared += 1
            except PlanError:
                pass
    assert declared > 0.9 * reduced > 1000
