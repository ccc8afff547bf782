"""WindowedStream: the rows of each key, window by window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams import not_here
from penstock.datastream._streams.function_wrappers import CallableReduce, as_function
from penstock.datastream._streams.node_settings import check_type
from penstock.datastream._streams.side_outputs import check_tag, remember_type
from penstock.datastream.columnar import ColumnAggregate
from penstock.datastream.data_stream import KeyedStream, SingleOutputStreamOperator
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction, ReduceFunction, WindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import TumblingEventTimeWindows, WindowAssigner
from penstock.graph.logical import OperatorKind
from penstock.graph.windows import WindowSpec

AnyWindowFunction = WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]


class WindowedStream:
    """Made by `keyed_stream.window(assigner)`. A window's result is put out when the watermark passes its end, with
    the window's last millisecond as its timestamp."""

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner) -> None:
        if isinstance(window_assigner, type):
            raise TypeError(f"window() was given the class {window_assigner.__name__}; make an assigner, e.g. "
                            "TumblingEventTimeWindows.of(Duration.of_seconds(10))")
        if not isinstance(window_assigner, TumblingEventTimeWindows):
            raise TypeError("window() takes one of the window assigners that there are: "
                            f"TumblingEventTimeWindows.of(size, offset); got {window_assigner!r}")
        self._keyed_stream = keyed_stream
        self._window_assigner = window_assigner
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    if not TYPE_CHECKING:  # for a type checker, it has what it has

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise not_here.of_windows(self, self._keyed_stream, name)

    def get_execution_environment(self) -> Any:
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        return self._keyed_stream.get_type()

    def allowed_lateness(self, time_ms: int | Duration | Time) -> WindowedStream:
        """For so long (ms) after its end, a window is kept, and put out anew for every row that still comes."""
        try:
            self._allowed_lateness_ms = Duration.of(time_ms).to_millis()
        except ValueError as error:
            raise ValueError(f"allowed_lateness() takes 0 or more milliseconds, got {time_ms!r}") from error
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> WindowedStream:
        """Rows whose window is gone, `result.get_side_output(output_tag)`. Without a tag they are counted and
        dropped."""
        check_tag(output_tag, "side_output_late_data()")
        given, rows = output_tag.type_info, self._keyed_stream._type
        if given is not None and rows is not None and given != rows:
            raise TypeError(f"side_output_late_data({output_tag!r}): late rows have the type of the stream, {rows}; "
                            "leave the tag's type out, or say that")
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AnyWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Rows are folded as they come. `window_function` is given the one value that they come to."""
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
    ) -> SingleOutputStreamOperator:
        """Rows are added to an accumulator as they come. `window_function` is given the one result. Named built-in
        aggregates are for windows of streams that are keyed by columns."""
        if named or isinstance(aggregate_function, ColumnAggregate):
            raise TypeError(not_here.aggregate_of_windows(self._keyed_stream, "aggregate"))
        refuse = _no_callable("aggregate", "AggregateFunction")
        aggregate = as_function(aggregate_function, AggregateFunction, refuse, "aggregate")
        check_type(accumulator_type, "Window Aggregate")
        process = None if window_function is None else _window_function(window_function, "aggregate")
        return self._then("Window Aggregate", output_type, accumulator_type, aggregate=aggregate, process=process)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Keeps the rows of a window until it is put out. `reduce` and `aggregate` keep one value instead."""
        refuse = _no_callable("process", "ProcessWindowFunction")
        process = as_function(process_window_function, ProcessWindowFunction, refuse, "process")
        return self._then("Window Process", output_type, self._keyed_stream._type, process=process)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Like `process`, with a function that is given the window instead of a context."""
        refuse = _no_callable("apply", "WindowFunction")
        process = as_function(window_function, WindowFunction, refuse, "apply")
        return self._then("Window Apply", output_type, self._keyed_stream._type, process=process)

    def _then(
        self, name: str, output_type: TypeInformation | None, element_type: TypeInformation | None,
        reduce: ReduceFunction | None = None, aggregate: AggregateFunction | None = None,
        process: AnyWindowFunction | None = None,
    ) -> SingleOutputStreamOperator:  # fmt: skip
        spec = WindowSpec(
            size_ms=self._window_assigner.size_ms,
            offset_ms=self._window_assigner.offset_ms,
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            reduce=reduce,
            aggregate=aggregate,
            process=process,
            element_type=element_type,
        )
        stream = self._keyed_stream._then(OperatorKind.WINDOW, name, spec, output_type)
        if self._late_tag is not None:
            late = OutputTag(self._late_tag.tag_id, self._late_tag.type_info or self._keyed_stream._type)
            remember_type(stream._node_for("window"), late)
        return stream


def _window_function(given: Any, method: str) -> Any:
    if isinstance(given, WindowFunction):
        return given
    refuse = _no_callable(method, "WindowFunction or a ProcessWindowFunction")
    return as_function(given, ProcessWindowFunction, refuse, method)


def _no_callable(method: str, kind: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        raise TypeError(f"{method}() of a windowed stream takes a {kind}, got the callable {given!r}")

    return refuse
