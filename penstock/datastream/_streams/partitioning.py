"""Chooses the subtask of the next operator that each row goes to."""

from __future__ import annotations

from typing import Any, Callable, Generic, overload

from penstock.datastream._streams.broadcast_streams import BroadcastStream, checked_descriptors
from penstock.datastream._streams.function_wrappers import partitioner_of, selector_of
from penstock.datastream._streams.stream_classes import D
from penstock.datastream.functions import Function, KeySelector
from penstock.datastream.state import MapStateDescriptor
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

    @overload
    def broadcast(self) -> D: ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> Any:
        """Send every row to every subtask of the next operator.

        Example:
            limits = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())
            orders.connect(rates.broadcast(limits)).process(Limit(), Types.STRING())

        Args:
            broadcast_state_descriptor: Names broadcast state, which the function of `stream.connect(...)` fills from
                the rows. None: the rows are broadcast, and there is no such state.
            other_broadcast_state_descriptors: Name more broadcast states.

        Returns:
            With descriptors a `BroadcastStream`, for `connect()`; without any a `DataStream`.

        Raises:
            TypeError: An argument is no `MapStateDescriptor`.
            ValueError: Two descriptors have one name.
        """
        partitioned: Any = self._partitioned(Partitioner(PartitionerKind.BROADCAST))
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return partitioned
        given: Any = self
        descriptors = checked_descriptors((broadcast_state_descriptor, *other_broadcast_state_descriptors))
        return BroadcastStream(given, descriptors, partitioned)

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
