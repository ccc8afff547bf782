"""Connects a stream with a broadcast stream, whose rows fill state that every subtask has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Sequence

from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams import missing_methods
from penstock.datastream._streams.function_wrappers import as_function, refuse_callable
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.graph.declared_broadcasts import BroadcastSpec
from penstock.graph.logical import OperatorKind


def checked_descriptors(descriptors: Sequence[Any]) -> tuple[MapStateDescriptor, ...]:
    """Return the descriptors that `broadcast()` was given. Raises TypeError or ValueError."""
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(
                "broadcast() takes MapStateDescriptors, e.g. MapStateDescriptor('rules', Types.STRING(), "
                f"Types.LONG()); got {descriptor!r}"
            )
    names = [descriptor.get_name() for descriptor in descriptors]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"broadcast(): two descriptors have the name {name!r}; give each state its own")
    return tuple(descriptors)


class BroadcastStream:
    """Represents a stream that is broadcast to fill state, made by `stream.broadcast(descriptor)`, for `connect()`."""

    def __init__(
        self, input_stream: Stream[Any], broadcast_state_descriptors: Sequence[MapStateDescriptor], rows: Stream[Any]
    ) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        self._rows = rows

    def _connected_to(self, stream: Stream[S]) -> BroadcastConnectedStream[S]:
        return BroadcastConnectedStream(stream, self, self.broadcast_state_descriptors)

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_broadcast(self, name)


class BroadcastConnectedStream(Generic[S]):
    """Represents a stream and a broadcast stream, made by `stream.connect(broadcast_stream)`."""

    def __init__(
        self,
        non_broadcast_stream: Stream[S],
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        if non_broadcast_stream._environment is not broadcast_stream.input_stream._environment:
            raise ValueError("connect() takes streams of one environment")
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = checked_descriptors(broadcast_state_descriptors)

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_connected(self, name)

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the streams were declared in."""
        return self.non_broadcast_stream.get_execution_environment()

    def process(
        self,
        func: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        output_type: TypeInformation | None = None,
    ) -> S:
        """Apply a function that keeps broadcast state, which the rows of the broadcast stream change.

        Args:
            func: A `KeyedBroadcastProcessFunction` if the stream that is not broadcast is keyed, otherwise a
                `BroadcastProcessFunction`.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind.
        """
        stream = self.non_broadcast_stream
        keyed = stream._partitioner is not None
        if isinstance(func, BroadcastProcessFunction) and keyed:
            raise TypeError(
                "process() was given a BroadcastProcessFunction, but the stream is keyed: give it a "
                "KeyedBroadcastProcessFunction, or leave out key_by()"
            )
        if isinstance(func, KeyedBroadcastProcessFunction) and not keyed:
            raise TypeError(
                "process() was given a KeyedBroadcastProcessFunction, but the stream is not keyed: call key_by() "
                "on it before connect()"
            )
        base = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        refuse = refuse_callable("process() of a stream and a broadcast stream", base.__name__)
        function = as_function(func, base, refuse, "process")
        inputs = [*stream._inputs, *(replace(i, index=1) for i in self.broadcast_stream._rows._inputs)]
        kind = OperatorKind.KEYED_BROADCAST_PROCESS if keyed else OperatorKind.BROADCAST_PROCESS
        name = "Co-Process-Broadcast-Keyed" if keyed else "Co-Process-Broadcast"
        return stream._then(kind, name, BroadcastSpec(function, self.broadcast_state_descriptors), output_type, inputs)
