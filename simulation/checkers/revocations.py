"""Checks that nothing of a generation gets out of a process to which its end has been told."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.messages import Left, Message
from penstock.state.backend import StateRevoked
from penstock.storage.layout import SegmentName
from simulation.world.world import World


class RevocationChecker:
    """Watches one process.

    A generation ends in it at a moment of any step; the step comes to its end, and what it sends from then on must stay
    inside. Once the process has reported `Left`, nothing of the generation runs.
    """

    def __init__(self, world: World, process: str) -> None:
        self._world = world
        self._process = process
        self.revoked = Generation(0, 0)
        self._left = Generation(0, 0)
        self._handles: list[Any] = []

    def on_revoked(self, generation: Generation) -> None:
        self.revoked = max(self.revoked, generation)

    def on_sent(self, message: Message) -> None:
        if isinstance(message, Left):
            self._left = self.revoked
            self._check_handles()
            return
        generation = getattr(message, "generation", None)
        if generation is not None and Generation(0, 0) < tuple(generation) <= self.revoked:
            self._violate(f"{type(message).__name__} of generation {tuple(generation)} leaves after the end of that")

    def on_frame(self, generation: Generation, frame: Frame) -> None:
        if generation <= self.revoked:
            self._violate(f"{type(frame).__name__} of generation {tuple(generation)} leaves after the end of that")

    def on_step(self, name: str, generation: Generation) -> None:
        if generation <= self._left:
            self._violate(f"{name} runs in generation {tuple(generation)}, which the process has left")

    def on_stored(self, segment: SegmentName) -> None:
        if segment.generation <= self._left:
            self._violate(f"a segment of generation {tuple(segment.generation)} is written, which the process has left")

    def keep(self, handle: Any) -> None:
        """Keep a handle of state that closed user code still has."""
        self._handles.append(handle)

    def _check_handles(self) -> None:
        for handle in self._handles:
            try:
                handle.value()
            except StateRevoked:
                continue
            self._violate("a handle of state works after the process has left its generation")
        self._handles.clear()

    def _violate(self, what: str) -> None:
        self._world.violate(f"{self._process}: {what}")
