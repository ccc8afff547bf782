"""Applies functions to the rows of a key and window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generic, Self

from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams import missing_methods
from penstock.datastream._streams.function_wrappers import CallableReduce, as_function, refuse_callable
from penstock.datastream._streams.node_settings import check_type
from penstock.datastream._streams.side_outputs import check_tag, remember_type
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.columnar import ColumnAggregate
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction, ReduceFunction, WindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import WindowAssigner
from penstock.graph.declared_windows import WindowSpec
from penstock.graph.logical import OperatorKind

AnyWindowFunction = WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]

_WHERE = "of a windowed stream"


class Windowed(Generic[S]):
    """Offers functions of windows, and the settings of windows."""

    def __init__(self, keyed_stream: Stream[S], window_assigner: WindowAssigner) -> None:
        if isinstance(window_assigner, type):
            raise TypeError(
                f"window() was given the class {window_assigner.__name__}; make an assigner, e.g. "
                "TumblingEventTimeWindows.of(Duration.of_seconds(10))"
            )
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(
                "window() takes a window assigner, e.g. TumblingEventTimeWindows.of(size, offset); got "
                f"{window_assigner!r}"
            )
        self._keyed_stream = keyed_stream
        self._window_assigner = window_assigner
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise missing_methods.of_windows(self, self._keyed_stream, name)

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the stream was declared in."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the rows that the windows hold."""
        return self._keyed_stream.get_type()

    def allowed_lateness(self, time_ms: int | Duration | Time) -> Self:
        """Keep each window for some event time after its end; every late row for it emits its result again.

        Args:
            time_ms: How long, in milliseconds or as a `Duration`. Default: 0.

        Returns:
            This windowed stream.

        Raises:
            ValueError: `time_ms` is negative, or no length of time.
        """
        try:
            self._allowed_lateness_ms = Duration.of(time_ms).to_millis()
        except ValueError as error:
            raise ValueError(f"allowed_lateness() takes 0 or more milliseconds, got {time_ms!r}") from error
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit rows whose window has been discarded to a side output. Without it they are counted and dropped.

        Example:
            late = OutputTag("late")
            totals = keyed.window(assigner).side_output_late_data(late).reduce(add)
            totals.get_side_output(late).sink_to(sink)

        Args:
            output_tag: The tag of the side output. Its type is the type of the stream's rows.

        Returns:
            This windowed stream.

        Raises:
            TypeError: `output_tag` is no tag, or has another type than the rows.
        """
        check_tag(output_tag, "side_output_late_data()")
        given, rows = output_tag.type_info, self._keyed_stream._type
        if given is not None and rows is not None and given != rows:
            raise TypeError(
                f"side_output_late_data({output_tag!r}): late rows have the type of the stream, {rows}; "
                "leave the tag's type out, or say that"
            )
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AnyWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> S:
        """Combine the rows of each key and window as they come, and emit one result per window.

        Only the combined value is kept in state, not the rows.

        Args:
            reduce_function: A `ReduceFunction`, or a function (result so far, row) -> result.
            window_function: A `WindowFunction` or `ProcessWindowFunction`. It gets the result as its only element,
                and what it yields is emitted instead. None: the result is emitted.
            output_type: The type of the emitted rows. None: that of the stream's rows; with a `window_function`, they
                are pickled.

        Returns:
            The stream of results. A result's timestamp is the last millisecond of its window.

        Raises:
            TypeError: A function is of another kind.
        """
        reduce = as_function(reduce_function, ReduceFunction, CallableReduce, "reduce")
        rows = self._keyed_stream._type
        process = None if window_function is None else _window_function(window_function, "reduce")
        if process is None and output_type is None:
            output_type = rows
        return self._then("Window Reduce", output_type, rows, reduce=reduce, process=process)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | None = None,
        window_function: AnyWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        **named: ColumnAggregate,
    ) -> S:
        """Add the rows of each key and window to an accumulator as they come, and emit one result per window.

        Only the accumulator is kept in state, not the rows. For streams keyed by columns there are built-in
        aggregates instead: `stream.key_by("user").window(assigner).aggregate(total=sum_("amount"), orders=count())`.

        Args:
            aggregate_function: An `AggregateFunction`.
            window_function: A `WindowFunction` or `ProcessWindowFunction`. It gets the result as its only element,
                and what it yields is emitted instead. None: the result is emitted.
            accumulator_type: The type of the accumulator in state. None: it is pickled.
            output_type: The type of the emitted rows. None: they are pickled.
            named: Built-in aggregates, by the names of their columns. Only for streams keyed by columns.

        Returns:
            The stream of results. A result's timestamp is the last millisecond of its window.

        Raises:
            TypeError: A function is of another kind, or built-in aggregates were given and the stream is keyed by a
                selector.
        """
        if named or isinstance(aggregate_function, ColumnAggregate):
            raise TypeError(missing_methods.aggregate_of_windows(self._keyed_stream, "aggregate"))
        refuse = refuse_callable(f"aggregate() {_WHERE}", "AggregateFunction")
        aggregate = as_function(aggregate_function, AggregateFunction, refuse, "aggregate")
        check_type(accumulator_type, "Window Aggregate")
        process = None if window_function is None else _window_function(window_function, "aggregate")
        return self._then("Window Aggregate", output_type, accumulator_type, aggregate=aggregate, process=process)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> S:
        """Apply a function to all rows of each key and window.

        The rows are kept in state until the window is discarded; `reduce` and `aggregate` keep one value instead.

        Args:
            process_window_function: A `ProcessWindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable(f"process() {_WHERE}", "ProcessWindowFunction")
        process = as_function(process_window_function, ProcessWindowFunction, refuse, "process")
        return self._then("Window Process", output_type, self._keyed_stream._type, process=process)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> S:
        """Apply a function to all rows of each key and window, like `process`, with the window as an argument.

        Args:
            window_function: A `WindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable(f"apply() {_WHERE}", "WindowFunction")
        process = as_function(window_function, WindowFunction, refuse, "apply")
        return self._then("Window Apply", output_type, self._keyed_stream._type, process=process)

    def _then(
        self,
        name: str,
        output_type: TypeInformation | None,
        element_type: TypeInformation | None,
        reduce: ReduceFunction | None = None,
        aggregate: AggregateFunction | None = None,
        process: AnyWindowFunction | None = None,
    ) -> S:
        spec = WindowSpec(
            assigner=self._window_assigner._assigner(),
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            reduce=reduce,
            aggregate=aggregate,
            process=process,
            element_type=element_type,
            window_class=self._window_assigner._window_class,
        )
        stream = self._keyed_stream._then(OperatorKind.WINDOW, name, spec, output_type)
        self._remember_late_type(stream)
        return stream

    def _remember_late_type(self, stream: Any) -> None:
        if self._late_tag is not None:
            late = OutputTag(self._late_tag.tag_id, self._late_tag.type_info or self._keyed_stream._type)
            remember_type(stream._node_for("window"), late)


def _window_function(given: Any, method: str) -> Any:
    if isinstance(given, WindowFunction):
        return given
    refuse = refuse_callable(f"{method}() {_WHERE}", "WindowFunction or a ProcessWindowFunction")
    return as_function(given, ProcessWindowFunction, refuse, method)
