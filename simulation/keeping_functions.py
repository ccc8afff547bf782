"""Provides a function of simulated jobs that keeps rows in state, and asks for it late."""

from __future__ import annotations

from typing import Any, Iterator

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ListStateDescriptor
from simulation import world_hooks
from simulation.simulated_functions import Busy
from simulation.world_hooks import Row


class AskLate(Busy, KeyedProcessFunction):
    """Passes rows. Keeps those with numbers below `kept_to` in state, asks for none of it with the rows that follow,
    and looks for all of it from number `asked_from` on. `expected`: how many each key keeps."""

    def __init__(self, kept_to: int, asked_from: int, expected: dict[int, int], cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.kept_to = kept_to
        self.asked_from = asked_from
        self.expected = expected

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def _kept(self) -> Any:
        return self._context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.work()
        number, key = value[1], value[2]
        if number < self.kept_to:
            self._kept().add(number)
        elif number >= self.asked_from:
            found = sorted(self._kept().get() or [])
            if found != sorted(set(found)) or len(found) != self.expected[key]:
                world_hooks.current().violate(
                    f"key {key}: state that is first asked for now has {len(found)} of {self.expected[key]} rows"
                )
        yield value
