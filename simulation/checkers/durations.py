"""Bounds the duration of checkpoints in runs without faults. The bound is made of what the run itself has measured.

It holds if processes are busy at the same time (`World.is_parallel`): each subtask on the way is held up by one step,
and each barrier by one connection, whatever waits in queues. Without this: a barrier that stays behind the rows of an
output queue after its timeout is held up by all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.job_graph import JobGraph
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.messages import Message, SlotAck, TriggerCheckpoint
from simulation.world.world import World

SLOWNESS_MAX = 10.0
"""A runner waits for its turn for up to this multiple of the pace of steps."""
PARKED_MS_MAX = 20.0
_MAIL_OF_A_SUBTASK = 3


@dataclass
class Measured:
    """Records the longest that anything of its kind has taken so far, in ms."""

    step_ms: float = 0.0
    transit_ms: float = 0.0


@dataclass
class _Running:
    barrier: Barrier
    since_ms: float
    missing: int
    ranges: int = 0


def levels_of(graph: JobGraph) -> int:
    """Return the number of vertices on the longest path from a source to a sink."""
    depth = [1] * len(graph.vertices)
    for edge in sorted(graph.edges, key=lambda e: e.source):
        depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    return max(depth)


class DurationChecker:
    """Checks durations. `step_ms`, `control_ms`: the pace of the world. `store_ms`: the longest that a call of the
    store takes.
    """

    def __init__(self, world: World, graph: JobGraph, step_ms: float, control_ms: float, store_ms: float) -> None:
        self._world = world
        self._levels = levels_of(graph)
        self._slots = max(v.parallelism for v in graph.vertices)
        self._subtasks = len(graph.vertices)
        self._turn_ms = step_ms * SLOWNESS_MAX
        self._control_ms = control_ms
        self._store_ms = store_ms
        self._running: dict[int, _Running] = {}
        self.measured = Measured()
        self.checked = 0

    def on_told(self, message: Message) -> None:
        """Note a message from the driver to a slot."""
        if isinstance(message, TriggerCheckpoint) and message.barrier.checkpoint_id not in self._running:
            barrier = message.barrier
            self._running[barrier.checkpoint_id] = _Running(barrier, self._world.now_ms, self._slots)

    def on_acknowledged(self, ack: SlotAck) -> None:
        running = self._running[ack.checkpoint_id]
        running.missing -= 1
        running.ranges = max(running.ranges, sum(len(s.keyed) for s in ack.subtasks))
        if running.missing == 0 and running.barrier.alignment_timeout_ms is not None:
            self._check(running)

    def _check(self, running: _Running) -> None:
        self.checked += 1
        took_ms = self._world.now_ms - running.since_ms
        measured = self.measured
        # A barrier finds a subtask in a step, and waits for the next one.
        hop_ms = measured.step_ms + 2 * self._turn_ms + measured.transit_ms
        writer_steps = running.ranges + self._subtasks * _MAIL_OF_A_SUBTASK
        writer_ms = writer_steps * self._turn_ms + (running.ranges + 2) * self._store_ms
        timeout_ms = running.barrier.alignment_timeout_ms or 0
        limit_ms = timeout_ms + (self._levels + 2) * hop_ms + writer_ms + 2 * self._control_ms + PARKED_MS_MAX
        if took_ms > limit_ms:
            self._world.violate(
                f"checkpoint {running.barrier.checkpoint_id} took {took_ms:.0f} ms though nothing is wrong; with an "
                f"alignment timeout of {timeout_ms} ms, {self._levels} vertices in a row and steps of "
                f"{measured.step_ms:.0f} ms it has {limit_ms:.0f} ms"
            )
