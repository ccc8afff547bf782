"""Changes what the functions of a simulated job declare, from one driver to the next, and where state is kept.

Rows in state gain fields and lose others, in any order, and numbers become wider. A field that is gone never comes
back, so what has to be found follows from what was written last, whichever drivers there were between. State that
expires gets a longer or a shorter time to live. A change has a random source of its own, so that jobs that never change
stay what they were.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from random import Random

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions
from penstock.graph.logical import LogicalGraph
from simulation.evolving_functions import WIDTHS, DeclaredTypes, Evolve
from simulation.expiring_functions import Expire

_FIELDS_MAX = 5
_TTL_SHARES = (0.4, 1.0, 3.0)


@dataclass(frozen=True)
class Declarations:
    """Holds what the next driver's program declares, and its backend."""

    types: DeclaredTypes
    backend: str
    ttl_share: float = 1.0
    """The time to live, as a multiple of what it was at first."""
    ttl_share_least: float = 1.0
    """The shortest that any driver has had."""


class DeclaredChanges:
    """Changes declared types in place. `changes_backend`: also where state is kept."""

    def __init__(
        self, random: Random, graph: LogicalGraph, configuration: Configuration, changes_backend: bool
    ) -> None:
        self._random = random
        self._evolving = [node for node in graph.nodes if isinstance(node.function, Evolve)]
        self._expiring = [node for node in graph.nodes if isinstance(node.function, Expire)]
        self._configuration = configuration
        self._changes_backend = changes_backend
        self.state = Declarations(DeclaredTypes(), configuration.get(StateBackendOptions.STATE_BACKEND))

    def draw(self) -> bool:
        """Change something. Returns whether anything was changed; `apply` carries it out."""
        before = self.state
        if self._evolving:
            self.state = replace(before, types=self._drawn(before.types))
        if self._changes_backend and self._random.random() < 0.4:
            self.state = replace(self.state, backend="rocksdb" if before.backend == "hashmap" else "hashmap")
        if self._expiring and self._random.random() < 0.5:
            share = self._random.choice(_TTL_SHARES)
            least = min(share, before.ttl_share_least)
            self.state = replace(self.state, ttl_share=share, ttl_share_least=least)
        return self.state != before

    def _drawn(self, types: DeclaredTypes) -> DeclaredTypes:
        random = self._random
        fields, named = list(types.fields), types.named
        if len(fields) > 1 and random.random() < 0.5:
            fields.remove(random.choice(fields))
        while len(fields) < _FIELDS_MAX and random.random() < 0.5:
            fields.append(f"field {named}")
            named += 1
        random.shuffle(fields)
        is_wider = types.width + 1 < len(WIDTHS) and random.random() < 0.4
        return DeclaredTypes(tuple(fields), types.width + is_wider, named)

    def apply(self) -> None:
        """Set the graph's functions and the configured backend to those of `state`. Drivers that still run have
        functions of their own.
        """
        state = self.state
        for node in self._evolving:
            evolving = copy.copy(node.function)
            assert isinstance(evolving, Evolve)
            evolving.types = state.types
            node.function = evolving
        for node in self._expiring:
            expiring = copy.copy(node.function)
            assert isinstance(expiring, Expire)
            expiring.live_for(state.ttl_share, state.ttl_share_least)
            node.function = expiring
        if self._changes_backend:
            self._configuration.set(StateBackendOptions.STATE_BACKEND, self.state.backend)
