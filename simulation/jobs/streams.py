"""Describes a stream while it is declared, and its expected rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulation.jobs.clocks import Clock
from simulation.jobs.drawn_parallelisms import Group
from simulation.world.world_hooks import Row


@dataclass(frozen=True)
class Expected:
    """Describes expected rows. `rows` have count 0. `ordered`: rows of one split and key keep their order. `counts`:
    the count that rows carry is that of one keyed operator, so no two of a key have the same. `exact`: `rows` have
    their counts, too.

    `clock`: the event time of the rows, where they have one. `patient`: none of them may ever be late.
    """

    rows: tuple[Row, ...]
    ordered: bool
    counts: bool = False
    exact: bool = False
    clock: Clock | None = None
    patient: bool = False


@dataclass
class Stream:
    """Holds a stream. `stream` is a `DataStream`. `parallelism` is that of the first driver's graph."""

    stream: Any
    group: Group
    expected: Expected
    typed: bool

    @property
    def parallelism(self) -> int:
        return self.group.root().parallelism
