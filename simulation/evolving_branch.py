"""Adds a branch to a random job whose functions declare their state otherwise after a resume."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from simulation.added_branches import add_branch, branch_of
from simulation.choices import step
from simulation.evolving_functions import Evolve
from simulation.streams import Stream

if TYPE_CHECKING:
    from simulation.workload import WorkloadBuilder


def evolution_of(seed: int) -> Random | None:
    """Return what draws a branch of changed types, in some of the seeds, from a random source of its own."""
    return branch_of(seed, "changed types")


def add_evolving_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch in addition to all others, down to a sink of its own."""
    add_branch(job, random, evolve)


@step
def evolve(
    job: WorkloadBuilder, before: Stream, parallelism: int | None = None, cost_ms: float | None = None
) -> Stream:
    """Declare a function that passes rows, and keeps others in state. What it declares may change at a resume."""
    parallelism, cost_ms = job.parallelism(parallelism), job.cost_ms(cost_ms)
    name = f"evolve {len(job.words)}"
    row_type, typed = job.row_type()
    after = job.keyed(before, by_column=False).process(Evolve(name, cost_ms), row_type).uid(name)
    return job.finish(after, parallelism, before.expected, name, typed, [before], "keyed")
