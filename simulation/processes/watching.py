"""Writes the decisions of a subtask's machine to the trace: snapshots, barriers that turn, what is captured,
declines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.protocol.subtask.cut import Cut
from penstock.protocol.subtask.effects import (
    BarrierReached,
    CloseCapture,
    Decline,
    DropCapture,
    Effect,
    RowFinished,
    SendFrame,
    TakeSnapshot,
    TimePassed,
)
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.frames import AlignedBarrier, UrgentBarrier
from simulation.world.trace import About
from simulation.world.world import World

_TURNING = (TimePassed, AlignedBarrier, BarrierReached)
"""Events of aligned barriers. Where one of them leads to an unaligned snapshot, the barriers have turned."""


def name_of(subtask: tuple[int, int]) -> str:
    return f"vertex {subtask[0]} subtask {subtask[1]}"


def watch(world: World, process: str, machine: SubtaskMachine, subtask: tuple[int, int]) -> None:
    """Have every decision of the machine told to the world's trace. `subtask`: its vertex and number."""
    machine.handle = _Watcher(world, process, machine, subtask).handle  # type: ignore[method-assign]


class _Watcher:
    def __init__(self, world: World, process: str, machine: SubtaskMachine, subtask: tuple[int, int]) -> None:
        self._world = world
        self._process = process
        self._machine = machine
        self._subtask = subtask
        self._handle = machine.handle
        self._decisive: Any = None
        """The newest event that was not the end of a row, for which a decision may have waited."""
        self._cause = ""

    def handle(self, event: Any, now_ms: float) -> Sequence[Effect]:
        before = self._machine.story.newest
        effects = self._handle(event, now_ms)
        newest = self._machine.story.newest
        if newest is None or newest is before:
            # Elements, and what leaves an output queue: what they may do is to end a capture.
            self._tell(_lines(effects, event, "nothing of it is in flight any more"))
            return effects
        told = newest()
        if not isinstance(event, RowFinished):
            self._decisive, self._cause = event, told.cause
        lines = list(_lines(effects, self._decisive, self._cause))
        if not lines and told.before != told.after:
            checkpoint_id = event.checkpoint_id if hasattr(event, "checkpoint_id") else event.barrier.checkpoint_id
            lines = [(checkpoint_id, f"checkpoint {checkpoint_id}: {told.before} -> {told.after} ({told.cause})")]
        self._tell(lines)
        return effects

    def _tell(self, lines: Iterator[tuple[int, str]] | list[tuple[int, str]]) -> None:
        for checkpoint_id, line in lines:
            about = About((checkpoint_id,), (self._subtask,))
            self._world.tell(self._process, f"{name_of(self._subtask)} {line}", about)


def _lines(effects: Sequence[Effect], decisive: Any, cause: str) -> Iterator[tuple[int, str]]:
    """Yield the checkpoint and the text of each line."""
    taken = {effect.cut.checkpoint_id for effect in effects if isinstance(effect, TakeSnapshot)}
    for effect in effects:
        match effect:
            case TakeSnapshot(cut):
                number = cut.checkpoint_id
                if cut.unaligned and isinstance(decisive, _TURNING):
                    why = cause if isinstance(decisive, TimePassed) else f"{cause}: it is overdue"
                    yield number, f"turns the barriers of checkpoint {number} unaligned in its input queues ({why})"
                yield number, _snapshot(cut, cause)
            case SendFrame(UrgentBarrier() as frame) if frame.barrier.checkpoint_id not in taken:
                channel, number = frame.channel, frame.barrier.checkpoint_id
                queue = f"the output queue of {channel.edge}[{channel.producer}->{channel.consumer}]"
                yield number, f"turns the barrier of checkpoint {number} unaligned in {queue} ({cause})"
            case CloseCapture(cut):
                kept = f"{len(cut.inputs)} inputs and {len(cut.outputs)} outputs had elements in flight"
                yield cut.checkpoint_id, f"has all of checkpoint {cut.checkpoint_id}: {kept}"
            case Decline(checkpoint_id, reason):
                yield checkpoint_id, f"declines checkpoint {checkpoint_id}: {reason} ({cause})"
            case DropCapture(checkpoint_id):
                yield checkpoint_id, f"drops what it has of checkpoint {checkpoint_id} ({cause})"


def _snapshot(cut: Cut, cause: str) -> str:
    kind = "unaligned" if cut.unaligned else "aligned"
    numbers = f"applied {[*cut.applied.values()]} emitted {[*cut.emitted.values()]}"
    return f"takes its {kind} snapshot of checkpoint {cut.checkpoint_id}: {numbers} ({cause})"
