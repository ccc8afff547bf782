"""Holds a subtask while its job drains: until it is released; then it reads what was recovered, then live input as
always.

A held subtask handles mail and barriers, aligned ones with nothing live before them too, and nothing else: it consumes
no element, reads no source, fires no timer and sends no watermark. A release is followed only when every checkpoint
that it names has ended here (in a snapshot, a decline or a cancel): whatever the subtask does from then on is in none
of them. `penstock.protocol.restore.drain_phases` decides about releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import DrainReport


class Stage(IntEnum):
    """Lists the stages of one subtask's draining. `RELEASED`: it reads what was recovered, and live input."""

    HELD = 0
    RELEASED = 1
    OVER = 2


class DrainGate:
    """Holds the stage of one subtask's draining; `stage` is OVER in every subtask that does not `hold`."""

    def __init__(self, subtask: SubtaskId, generation: Generation, slot: int) -> None:
        self._subtask = subtask
        self._generation = generation
        self._slot = slot
        self._stage = Stage.OVER
        self.held = False
        """True while the subtask handles nothing but mail and barriers."""
        self.is_over = True
        """Timers of processing time, periodic watermarks and idleness wait for this."""
        self._next: list[tuple[Stage, set[int]]] = []
        self._ended: set[int] = set()
        self._sequence = 0
        self._reported: tuple[bool, bool, dict[int, int], dict[int, int]] | None = None

    def hold(self) -> None:
        self._enter(Stage.HELD)

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self.held, self.is_over = stage is Stage.HELD, stage is Stage.OVER

    def on_release(self, is_last: bool, checkpoints: Sequence[int]) -> None:
        """Release the subtask. `is_last`: draining is over. `checkpoints` were pending when the release was decided."""
        stage = Stage.OVER if is_last else Stage.RELEASED
        if self._stage is Stage.OVER:
            return
        # 3.4: the release waits for the checkpoints that it names.
        self._next.append((stage, set(checkpoints) - self._ended))
        self._follow()

    def on_checkpoint_ended(self, checkpoint_id: int) -> None:
        """Handle the end of a checkpoint in this subtask: a snapshot, a decline or a cancel."""
        if self._stage is Stage.OVER:
            return
        self._ended.add(checkpoint_id)
        for _, waits_for in self._next:
            waits_for.discard(checkpoint_id)
        self._follow()

    def _follow(self) -> None:
        while self._next and not self._next[0][1]:
            stage, _ = self._next.pop(0)
            self._enter(max(self._stage, stage))
        if self._stage is Stage.OVER:
            self._next.clear()
            self._ended.clear()

    def report(
        self, applied: dict[int, int], emitted: dict[int, int], layers_read: bool, idle: bool
    ) -> DrainReport | None:
        """Return the report for the JobMaster now that the subtask has run empty; None if there is nothing new.

        `applied` and `emitted`: by edge, over all its channels. `layers_read`: nothing recovered is left.
        """
        if self._stage is not Stage.RELEASED:
            return None
        found = (layers_read, idle, applied, emitted)
        if found == self._reported:
            return None
        self._reported = found
        self._sequence += 1
        return DrainReport(
            self._generation, self._slot, self._subtask, self._sequence, layers_read, idle, applied, emitted
        )
