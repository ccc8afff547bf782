"""Chooses parallelisms at which a simulated job may be resumed.

Operators that are chained, or joined by forward edges, form a group and are rescaled together. A group is pinned if
what is expected of the job depends on its parallelism: the subtasks that a broadcast reaches, the one subtask that
brings rows back into order, the splits of a source that are as many as its readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

_TRIES = 8


@dataclass
class Group:
    parallelism: int
    pinned: bool = False
    joined_to: Group | None = None

    def root(self) -> Group:
        return self if self.joined_to is None else self.joined_to.root()


class Parallelisms:
    """Holds the parallelisms of all operators of a job."""

    def __init__(self) -> None:
        self._streams: list[tuple[Any, Group]] = []
        self._groups: list[Group] = []
        self._at_most: list[tuple[Group, Group]] = []

    def new_group(self, parallelism: int, pinned: bool = False) -> Group:
        self._groups.append(Group(parallelism, pinned))
        return self._groups[-1]

    def add(self, stream: Any, group: Group) -> None:
        """Add a stream: anything with `set_parallelism`."""
        self._streams.append((stream, group))

    def join(self, one: Group, other: Group) -> None:
        first, second = one.root(), other.root()
        if first is not second:
            first.pinned = first.pinned or second.pinned
            second.joined_to = first

    def pin(self, *groups: Group) -> None:
        for group in groups:
            group.root().pinned = True

    def at_most(self, one: Group, other: Group) -> None:
        """Bound `one`: it never has a larger parallelism than `other`."""
        self._at_most.append((one, other))

    def fit_any_slots(self) -> bool:
        """Return whether the job can run in any number of slots: what is pinned has a parallelism of 1."""
        return all(group.root().parallelism == 1 for group in self._groups if group.root().pinned)

    def redraw(self, random: Random, largest: int) -> bool:
        """Sets other parallelisms, for all groups or for some. Returns whether any has changed."""
        share = random.choice((0.4, 1.0))
        roots = [g for g in self._groups if g.joined_to is None and not g.pinned]
        before = [g.parallelism for g in roots]
        for _ in range(_TRIES):
            for group, old in zip(roots, before):
                group.parallelism = random.randint(1, largest) if random.random() < share else old
            if all(one.root().parallelism <= other.root().parallelism for one, other in self._at_most):
                break
        else:
            for group, old in zip(roots, before):
                group.parallelism = old
        self._execute()
        return [g.parallelism for g in roots] != before

    def _execute(self) -> None:
        for stream, group in self._streams:
            stream.set_parallelism(group.root().parallelism)

    def levels(self) -> list[int]:
        """Return the parallelism of each group, for `set_levels`."""
        return [group.parallelism for group in self._groups]

    def set_levels(self, levels: list[int]) -> None:
        for group, parallelism in zip(self._groups, levels):
            group.parallelism = parallelism
        self._execute()

    def __str__(self) -> str:
        return " ".join(str(g.parallelism) for g in self._groups if g.joined_to is None)
