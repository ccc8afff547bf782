"""Adds a branch to a random job whose functions keep numbers in state that expires."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from simulation.added_branches import add_branch, branch_of
from simulation.choices import step
from simulation.expiring_functions import Expire
from simulation.streams import Stream

if TYPE_CHECKING:
    from simulation.workload import WorkloadBuilder

CLEANUPS = ("background", "none", "each row", "full snapshots")


def expiry_of(seed: int) -> Random | None:
    """Return what draws a branch of state that expires, in some of the seeds, from a random source of its own."""
    return branch_of(seed, "time to live")


def add_expiring_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch in addition to all others, down to a sink of its own."""
    add_branch(job, random, expire)


@step
def expire(
    job: WorkloadBuilder,
    before: Stream,
    ttl_ms: int | None = None,
    updates_on_read: bool | None = None,
    returns_expired: bool | None = None,
    cleanup: str | None = None,
    parallelism: int | None = None,
    cost_ms: float | None = None,
) -> Stream:
    """Declare a function that passes rows, and writes and reads numbers in state that expires after `ttl_ms`."""
    random = job.random
    ttl_ms = job.choose("ttl_ms", lambda: random.choice((5, 40, 200, 1000)), ttl_ms)
    updates = job.choose("updates_on_read", lambda: random.random() < 0.4, updates_on_read)
    returns = job.choose("returns_expired", lambda: random.random() < 0.3, returns_expired)
    cleanup = job.choose("cleanup", lambda: random.choice(CLEANUPS), cleanup)
    parallelism, cost_ms = job.parallelism(parallelism), job.cost_ms(cost_ms)
    name = f"expire {len(job.words)}"
    row_type, typed = job.row_type()
    function = Expire(name, ttl_ms, updates, returns, cleanup, job._salt(), cost_ms)
    after = job.keyed(before, by_column=False).process(function, row_type).uid(name)
    return job.finish(after, parallelism, before.expected, name, typed, [before], "keyed")
