"""Adds branches to the random jobs of some seeds. Each is drawn from a random source of its own, so that all else that
these seeds mean stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from simulation.streams import Stream

if TYPE_CHECKING:
    from simulation.workload import WorkloadBuilder

_SHARE = 0.15


def branch_of(seed: int, what: str) -> Random | None:
    """Return what draws a branch of that kind; None for the seeds that have none."""
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
