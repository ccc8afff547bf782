"""Chooses the subtask of the next operator that each row goes to."""

from __future__ import annotations

from typing import Any, Callable, Generic

from penstock.datastream._streams.function_wrappers import partitioner_of, selector_of
from penstock.datastream._streams.stream_classes import D
from penstock.datastream.functions import Function, KeySelector
from penstock.graph.logical import Partitioner, PartitionerKind


class Partitioning(Generic[D]):
    """Offers Flink's partitionings. They apply to the edge to the next operator only."""

    def _partitioned(self, partitioner: Partitioner) -> D:
        raise NotImplementedError

    def rebalance(self) -> D:
        """Send rows to all subtasks of the next operator in turn, so that each gets the same share."""
        return self._partitioned(Partitioner(PartitionerKind.REBALANCE))

    def forward(self) -> D:
        """Send rows to the subtask of the same index. Both operators must have the same parallelism."""
        return self._partitioned(Partitioner(PartitionerKind.FORWARD))

    def rescale(self) -> D:
        """Send rows in turn to a fixed share of the next operator's subtasks.

        Each subtask has fewer channels than with `rebalance()`. The shares are equal if one parallelism is a multiple
        of the other.
        """
        return self._partitioned(Partitioner(PartitionerKind.RESCALE))

    def shuffle(self) -> D:
        """Send each row to a subtask chosen at random."""
        return self._partitioned(Partitioner(PartitionerKind.SHUFFLE))

    def global_(self) -> D:
        """Send all rows to subtask 0 of the next operator."""
        return self._partitioned(Partitioner(PartitionerKind.GLOBAL))

    def broadcast(self, *broadcast_state_descriptors: Any) -> D:
        """Send every row to every subtask of the next operator.

        Args:
            broadcast_state_descriptors: None may be given: broadcast state is not implemented yet.

        Returns:
            The broadcast stream.

        Raises:
            NotImplementedError: A state descriptor was given.
        """
        if broadcast_state_descriptors:
            raise NotImplementedError(
                "broadcast(state_descriptor): broadcast state comes with a later release; "
                "broadcast() without one sends every row to every subtask"
            )
        return self._partitioned(Partitioner(PartitionerKind.BROADCAST))

    def partition_custom(
        self, partitioner: Callable[[Any, int], int] | Function, key_selector: KeySelector | Callable[[Any], Any]
    ) -> D:
        """Send each row to the subtask that a function of its key chooses.

        Args:
            partitioner: A `Partitioner`, or a function (key, number of subtasks) -> index of a subtask, from 0. After
                a restore at another parallelism it is asked again about rows in flight.
            key_selector: A `KeySelector`, or a function row -> key.

        Returns:
            The partitioned stream. It is not keyed: its functions have no keyed state.

        Raises:
            TypeError: An argument cannot be called in that way.
        """
        return self._partitioned(
            Partitioner(
                PartitionerKind.CUSTOM,
                key_selector=selector_of(key_selector, "partition_custom"),
                custom=partitioner_of(partitioner),
            )
        )
