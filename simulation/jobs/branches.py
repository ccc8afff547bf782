"""Adds branches to the random jobs of some seeds. Each is drawn from a random source of its own, so that all else that
these seeds mean stays the same. Some keep state that expires, or that is declared otherwise after a resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from simulation.jobs.choices import step
from simulation.jobs.declared_changes import Evolve, Expire
from simulation.jobs.streams import Stream

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder

_SHARE = 0.15


def branch_of(seed: int, what: str) -> Random | None:
    """Return the random source of a branch of that kind; None for the seeds that have none."""
    random = Random(f"{what} of {seed}")
    return random if random.random() < _SHARE else None


@contextmanager
def drawn_from(job: WorkloadBuilder, random: Random) -> Iterator[None]:
    """Draw everything that steps leave open from `random`, until the end of the block."""
    before, job.random = job.random, random
    try:
        yield
    finally:
        job.random = before


def add_branch(job: WorkloadBuilder, random: Random, step: Callable[[WorkloadBuilder, Stream], Stream]) -> None:
    """Declare a source, a step that passes its rows, and a sink of their own, in addition to all other branches."""
    with drawn_from(job, random):
        kind = random.choice(("sequence", "ranges", "owned"))
        rows = job.source(kind=kind, rows=random.randint(30, 70), timed=None)
        job.sink(step(job, rows))


def evolution_of(seed: int) -> Random | None:
    """Return the random source of a branch of changed types; None for the seeds that have none."""
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


CLEANUPS = ("background", "none", "each row", "full snapshots")


def expiry_of(seed: int) -> Random | None:
    """Return the random source of a branch of expiring state; None for the seeds that have none."""
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
