"""Defines joins of two streams, step by step: window joins, co-groups and interval joins.

Window joins and co-groups are windows over the rows of both streams, each with the number of its stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from penstock.common.program.signatures import check_call
from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, TupleType
from penstock.datastream._streams.function_wrappers import (
    CallableProcessJoin,
    as_function,
    refuse_callable,
    selector_of,
)
from penstock.datastream._streams.join_functions import (
    CallableCoGroup,
    CallableJoin,
    ColumnKey,
    GroupedWindow,
    Interval,
    IntervalJoined,
    JoinedWindow,
    Tag,
    TaggedKey,
    tagged_type,
)
from penstock.datastream._streams.schemas import columns_of, field_type, unknown_column
from penstock.datastream._streams.side_outputs import check_tag, remember_type
from penstock.datastream._windows.lengths import length_ms
from penstock.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    Function,
    JoinFunction,
    KeySelector,
    ProcessJoinFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import Trigger, WindowAssigner
from penstock.graph.logical import OperatorKind
from penstock.graph.timed_nodes import Timed, timed_rows, timed_union

__all__ = ["CoGroupedStreams", "IntervalJoin", "JoinedStreams"]

Key = KeySelector | Callable[[Any], Any] | str


class _WindowedPair:
    """Collects the settings of a window join or a co-group, one step after the other."""

    _method: str

    def __init__(self, first: Any, second: Any) -> None:
        self._streams = first, second
        self._keys: list[tuple[Callable[[Any], Any], TypeInformation | None]] = []
        self._windows: Any = None

    def where(self, key_selector: Key, *columns: str, key_type: TypeInformation | None = None) -> Self:
        """Set the key of the first stream.

        Args:
            key_selector: The name of a column; or a `KeySelector` or function row -> key.
            columns: The names of more columns.
            key_type: The type of the selector's keys. Keys that are columns have the type of the columns.

        Raises:
            TypeError: The selector cannot be called with a row, or a column cannot be a key.
            ValueError: The stream has no such column, or the key is set already.
        """
        if self._keys:
            raise ValueError("where() sets the key of the first stream, and equal_to() that of the second")
        self._keys.append(_key(self._streams[0], "where", key_selector, columns, key_type))
        return self

    def equal_to(self, key_selector: Key, *columns: str, key_type: TypeInformation | None = None) -> Self:
        """Set the key of the second stream.

        Args:
            key_selector: The name of a column; or a `KeySelector` or function row -> key.
            columns: The names of more columns.
            key_type: The type of the selector's keys. Keys that are columns have the type of the columns.

        Raises:
            TypeError: The selector cannot be called with a row, or the keys are of another type than those of the
                first stream.
            ValueError: The stream has no such column, or `where` was not called before.
        """
        if len(self._keys) != 1:
            raise ValueError(f"{self._method}(): call where(key) once, and then equal_to(key)")
        self._keys.append(_key(self._streams[1], "equal_to", key_selector, columns, key_type))
        first, second = (declared for _, declared in self._keys)
        if first is not None and second is not None and first != second:
            raise TypeError(
                f"{self._method}(): the keys of both streams have one type, got {first} and {second}: cast a column, "
                "or use selectors with a key_type"
            )
        return self

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> Self:
        """Set the windows.

        Args:
            window_assigner: An assigner of `penstock.datastream.window`. For event time both streams need timestamps
                and watermarks.

        Raises:
            TypeError: The argument is no window assigner.
            ValueError: The keys are not set.
        """
        if len(self._keys) != 2:
            raise ValueError(f"{self._method}(): call where(key) and equal_to(key) before window(assigner)")
        (first, key_type), (second, other_type) = self._keys
        rows = tagged_type(self._streams[0]._type, self._streams[1]._type)
        tagged = [
            stream.map(Tag(number), rows).name(f"Side {number + 1}") for number, stream in enumerate(self._streams)
        ]
        keyed = tagged[0].union(tagged[1]).key_by(TaggedKey(first, second), key_type or other_type)
        self._windows = keyed.window(window_assigner)
        return self

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set the trigger, which decides when windows emit their results, in place of the default of their assigner.

        Args:
            trigger: The trigger. It gets tuples (0 or 1 for the stream, row of the first, row of the second).

        Raises:
            TypeError: The argument is no trigger.
            ValueError: The windows are not set.
        """
        self._windowed("trigger").trigger(trigger)
        return self

    def allowed_lateness(self, time_ms: int | Duration | Time) -> Self:
        """Keep each window for some event time after its end; every late row for it emits its result again.

        Args:
            time_ms: How long, in milliseconds or as a `Duration`.

        Raises:
            ValueError: `time_ms` is negative, or the windows are not set.
        """
        self._windowed("allowed_lateness").allowed_lateness(time_ms)
        return self

    def _windowed(self, method: str) -> Any:
        if self._windows is None:
            raise ValueError(f"{self._method}(): call where(key), equal_to(key) and window(assigner) before {method}()")
        return self._windows


class JoinedStreams(_WindowedPair):
    """Represents two streams whose rows are joined by key and window, made by `stream.join(other)`.

    The methods are called in this order: `where`, `equal_to`, `window`, `apply`.
    """

    _method = "join"

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], Any],
        output_type: TypeInformation | None = None,
    ) -> Any:
        """Apply a function to each pair of rows with equal keys in the same window.

        Args:
            function: A `JoinFunction`, or a function (row, row) -> row; or a `FlatJoinFunction`.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
            ValueError: Keys or windows are not set.
        """
        kind = FlatJoinFunction if isinstance(function, FlatJoinFunction) else JoinFunction
        given = JoinedWindow(as_function(function, kind, CallableJoin, "apply"))
        windows = self._windowed("apply")
        return windows._then("Window Join", output_type, windows.get_input_type(), process=given)


class CoGroupedStreams(_WindowedPair):
    """Represents two streams whose rows are grouped by key and window, made by `stream.co_group(other)`.

    The methods are called in this order: `where`, `equal_to`, `window`, `apply`.
    """

    _method = "co_group"

    def apply(
        self, function: CoGroupFunction | Callable[[Any, Any], Any], output_type: TypeInformation | None = None
    ) -> Any:
        """Apply a function to the rows that both streams have of a key in a window.

        It is called for each key and window of which one of the streams has a row: an outer join is written with it.

        Args:
            function: A `CoGroupFunction`, or a function (rows, rows) -> iterable of rows.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
            ValueError: Keys or windows are not set.
        """
        given = GroupedWindow(as_function(function, CoGroupFunction, CallableCoGroup, "apply"))
        windows = self._windowed("apply")
        return windows._then("Window Co-Group", output_type, windows.get_input_type(), process=given)


def _key(
    stream: Any, method: str, key_selector: Any, columns: tuple[str, ...], key_type: TypeInformation | None
) -> tuple[Callable[[Any], Any], TypeInformation | None]:
    """Return a selector and the type of its keys (None: unknown)."""
    if not isinstance(key_selector, str):
        if columns:
            raise TypeError(f"{method}() takes a selector, or names of columns; got both")
        return selector_of(key_selector, method), key_type
    names = (key_selector, *columns)
    if key_type is not None:
        raise TypeError(f"{method}({key_selector!r}): leave key_type out: a column has a type")
    schema = columns_of(stream._type, f"{method}()")
    for name in names:
        if name not in schema.names:
            raise unknown_column(f"{method}()", name, schema)
    types = tuple(field_type(stream._type, name) for name in names)
    return ColumnKey(names), types[0] if len(types) == 1 else TupleType(types)


class IntervalJoin:
    """Represents two keyed streams whose rows are joined where their times are near, made by `interval_join`.

    `between` comes first, `process` last.
    """

    def __init__(self, connected: Any) -> None:
        self._connected = connected
        self._bounds: tuple[int, int] | None = None
        self._is_exclusive = [False, False]
        self._late: list[OutputTag | None] = [None, None]
        timed = timed_rows(connected.stream1._environment._graph)
        for stream, what in ((connected.stream1, "first"), (connected.stream2, "second")):
            if timed_union(timed, stream._inputs) is not Timed.ALL:
                raise ValueError(
                    f"interval_join(): rows of the {what} stream have no event time: call "
                    "assign_timestamps_and_watermarks(strategy) before key_by(), or give from_source() such a strategy"
                )

    def between(self, lower_bound: Time | Duration, upper_bound: Time | Duration) -> IntervalJoin:
        """Set the interval. A row meets those from its time plus `lower_bound` to its time plus `upper_bound`.

        Args:
            lower_bound: A length of time; `Time.minutes(-10)` is ten minutes before the row.
            upper_bound: A length of time. Both bounds belong to the interval.

        Raises:
            TypeError: A bound is no length of time.
            ValueError: `lower_bound` is above `upper_bound`.
        """
        lower_ms = length_ms(lower_bound, "lower bound", "between()")
        upper_ms = length_ms(upper_bound, "upper bound", "between()")
        if lower_ms > upper_ms:
            raise ValueError(f"between(): the lower bound ({lower_ms} ms) is above the upper bound ({upper_ms} ms)")
        self._bounds = lower_ms, upper_ms
        return self

    def lower_bound_exclusive(self) -> IntervalJoin:
        """Leave the lower bound out of the interval.

        Raises:
            ValueError: `between` was not called, or nothing is left of the interval.
        """
        return self._exclude(0, "lower_bound_exclusive")

    def upper_bound_exclusive(self) -> IntervalJoin:
        """Leave the upper bound out of the interval.

        Raises:
            ValueError: `between` was not called, or nothing is left of the interval.
        """
        return self._exclude(1, "upper_bound_exclusive")

    def _exclude(self, bound: int, method: str) -> IntervalJoin:
        before = self._is_exclusive[bound]
        self._is_exclusive[bound] = True
        lower_ms, upper_ms = self._interval(method)
        if lower_ms > upper_ms:
            self._is_exclusive[bound] = before
            raise ValueError("between(): without its bounds nothing is left of the interval")
        return self

    def _interval(self, method: str) -> tuple[int, int]:
        if self._bounds is None:
            raise ValueError(f"interval_join(): call between(lower_bound, upper_bound) before {method}()")
        return self._bounds[0] + self._is_exclusive[0], self._bounds[1] - self._is_exclusive[1]

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoin:
        """Emit late rows of the first stream to a side output. Without it they are counted and dropped.

        Args:
            output_tag: The tag of the side output.

        Raises:
            TypeError: The argument is no tag.
        """
        check_tag(output_tag, "side_output_left_late_data()")
        self._late[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoin:
        """Emit late rows of the second stream to a side output. Without it they are counted and dropped.

        Args:
            output_tag: The tag of the side output.

        Raises:
            TypeError: The argument is no tag.
        """
        check_tag(output_tag, "side_output_right_late_data()")
        self._late[1] = output_tag
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction | Callable[[Any, Any], Any],
        output_type: TypeInformation | None = None,
    ) -> Any:
        """Apply a function to each pair of rows. A pair is emitted as soon as both rows are there.

        Args:
            process_join_function: A `ProcessJoinFunction`, or a function (left row, right row) -> row.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the later one of the pair.

        Raises:
            TypeError: The function is of another kind.
            ValueError: `between` was not called.
        """
        interval = Interval(*self._interval("process"))
        given: Any = process_join_function
        if callable(given) and not isinstance(given, Function | type):
            check_call("process()", given, ["left", "right"])
            given = CallableProcessJoin(given)
        refuse = refuse_callable("process() of an interval join", "ProcessJoinFunction")
        function = as_function(given, ProcessJoinFunction, refuse, "process")
        streams = self._connected.stream1, self._connected.stream2
        types = tuple(None if stream._type == PICKLED else stream._type for stream in streams)
        tags = tuple(None if tag is None else tag.tag_id for tag in self._late)
        joined = IntervalJoined(function, interval, (tags[0], tags[1]), (types[0], types[1]))
        stream = self._connected._then(OperatorKind.KEYED_CO_PROCESS, "Interval Join", joined, output_type)
        for tag, declared in zip(self._late, types):
            if tag is not None:
                remember_type(stream._node_for("process"), OutputTag(tag.tag_id, tag.type_info or declared))
        return stream
