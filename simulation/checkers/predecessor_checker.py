"""Checks that the objects that a pending checkpoint may name stay until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.protocol.values.messages import Message, TriggerCheckpoint
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import SegmentName, parse
from simulation.world.world import World


class PredecessorChecker:
    """Follows the checkpoints of a job. `pending` returns those of the driver that owns the log."""

    def __init__(self, world: World, pending: Callable[[], Iterable[int]]) -> None:
        self._world = world
        self._pending = pending
        self._named: dict[int, frozenset[str]] = {}
        """Checkpoint in the log -> the segments that it names."""
        self._predecessors: dict[int, int] = {}
        self.named_again = 0
        """Segments of earlier checkpoints in the metadata of later ones."""

    def on_told(self, message: Message) -> None:
        """Record a driver's message to its slots."""
        if not isinstance(message, TriggerCheckpoint):
            return
        checkpoint_id, predecessor_id = message.barrier.checkpoint_id, message.barrier.predecessor_id
        if predecessor_id is None:
            # The driver before may have given the same number to one that nobody has written down.
            self._predecessors.pop(checkpoint_id, None)
            return
        if predecessor_id not in self._named:
            self._world.violate(
                f"checkpoint {checkpoint_id} may name what {predecessor_id} has, which is not in the log"
            )
        self._predecessors[checkpoint_id] = predecessor_id

    def on_published(self, metadata: Metadata) -> None:
        checkpoint_id = metadata.checkpoint_id
        segments = self._named[checkpoint_id] = frozenset(segment.path for segment in metadata.segments)
        found = [parse(path) for path in segments]
        self.named_again += sum(isinstance(f, SegmentName) and f.checkpoint_id != checkpoint_id for f in found)

    def on_deleted(self, path: str) -> None:
        for checkpoint_id in self._pending():
            predecessor_id = self._predecessors.get(checkpoint_id)
            if predecessor_id is not None and path in self._named.get(predecessor_id, ()):
                what = f"checkpoint {checkpoint_id} is pending and may name what {predecessor_id} has"
                self._world.violate(f"{path} is deleted, but {what}")
