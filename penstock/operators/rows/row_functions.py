"""Runs row functions as stages of a pipeline of generators.

A chain is pulled from its end, one row at a time and depth first. Between two input rows nothing is inside it, and a
function that yields for ever can be suspended and resumed without a thread.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.row_types.named_rows import reducing
from penstock.datastream.output_tag import OutputTag
from penstock.graph.job_graph import Operator
from penstock.graph.states import REDUCED_STATE
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext

Stage = Callable[[Iterator[Any]], Iterator[Any]]


class RowOperator:
    """Wraps one user function. `pipe` connects it to the stage before it."""

    late_rows = 0

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        self.operator = operator
        self.context = context
        self.function = operator.function
        self._opened = False

    def open(self) -> None:
        self._guarded(lambda: self.function.open(self.context))
        self._opened = True

    def close(self) -> None:
        if self._opened:
            self._opened = False
            self._guarded(self.function.close)

    def _guarded(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        raise NotImplementedError

    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Connect the operator as the head of a chain, whose rows come from input `input_index`."""
        return self.pipe(rows)

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        """Yield the rows that these timers of a keyed head emit, with the current key set to theirs."""
        raise NotImplementedError


class MapOperator(RowOperator):
    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        apply = self.function.map
        try:
            for row in rows:
                yield apply(row)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error


class FilterOperator(RowOperator):
    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        keeps = self.function.filter
        try:
            for row in rows:
                if keeps(row):
                    yield row
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error


def no_rows(operator: str, made: Any) -> OperatorFailure | None:
    """Return the error of a function that returned something other than rows."""
    if made is None or hasattr(made, "__iter__"):
        return None
    told = f"it must yield its rows, or return an iterable of them or None; it returned {made!r:.80}"
    return OperatorFailure(operator, TypeError(told), ours=True)


def expanded(expand: Callable[[Any], Any], rows: Iterator[Any], operator: str) -> Iterator[Any]:
    made: Any = None
    try:
        for row in rows:
            made = expand(row)
            if made is not None:
                yield from made
    except OperatorFailure:
        raise
    except USER_ERRORS as error:
        raise no_rows(operator, made) or OperatorFailure(operator, error) from error


class FlatMapOperator(RowOperator):
    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        return expanded(self.function.flat_map, rows, self.operator.name)


class ProcessOperator(RowOperator):
    """Runs a process function, keyed or not: the current key is set where the rows enter the chain."""

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self._element = context.element_context()

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        return self.called(self.function.process_element, rows)

    def called(
        self, process: Callable[[Any, Any], Any], rows: Iterator[Any], context: Any | None = None
    ) -> Iterator[Any]:
        """Yield the rows that `process(row, context)` emits for each row."""
        element = self._element if context is None else context
        side_outputs, name = self.operator.side_outputs, self.operator.name
        made: Any = None
        try:
            for row in rows:
                made = process(row, element)
                if made is not None:
                    yield from split_side_outputs(made, side_outputs)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise no_rows(name, made) or OperatorFailure(name, error) from error

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        return self.fired(timers, self.context.timer_context())

    def fired(self, timers: Iterator[Timer], context: Any) -> Iterator[Any]:
        """Yield the rows that the function's `on_timer` emits for each timer."""
        on_timer, name = self.function.on_timer, self.operator.name
        made: Any = None
        try:
            for timer in timers:
                made = on_timer(timer.timestamp_ms, context.at(timer))
                if made is not None:
                    yield from split_side_outputs(made, self.operator.side_outputs)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise no_rows(name, made) or OperatorFailure(f"{name} (its on_timer)", error) from error


def split_side_outputs(made: Any, side_outputs: tuple[str, ...]) -> Iterator[Any]:
    """Yield the rows that a process function emitted: `yield tag, value` belongs to a side output, and is dropped if it
    has no consumer.
    """
    for row in made:
        if type(row) is tuple and len(row) == 2 and type(row[0]) is OutputTag:
            if row[0].tag_id in side_outputs:
                yield SideRow(row[0].tag_id, row[1])
        else:
            yield row


class CoMapOperator(RowOperator):
    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        apply = (self.function.map1, self.function.map2)[input_index]
        try:
            for row in rows:
                made = apply(row)
                if made is not None:
                    yield made
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error


class CoFlatMapOperator(RowOperator):
    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        expand = (self.function.flat_map1, self.function.flat_map2)[input_index]
        return expanded(expand, rows, self.operator.name)


class CoProcessOperator(ProcessOperator):
    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        return self.called((self.function.process_element1, self.function.process_element2)[input_index], rows)


class FinalReduceOperator(RowOperator):
    """Reduces per key, and emits each result once, when its key's rows have ended: for each timer, that of its key.

    A result has the time of its key's last row.
    """

    def open(self) -> None:
        super().open()
        self._state = self.context.internal_value_state(REDUCED_STATE, self.operator.output_type)
        self._last_ms: int | None = None
        """The time of the newest row. Rows with a time come key by key."""

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        reduce, state = reducing(self.function.reduce, self.operator.output_type), self._state
        element = self.context.element
        try:
            for row in rows:
                before = state.value()
                state.update(row if before is None else reduce(before, row))
                self._last_ms = element.timestamp_ms
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error
        return
        yield

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        for _ in timers:
            self.context.element.timestamp_ms = self._last_ms
            yield self._state.value()


class ReduceOperator(RowOperator):
    """Reduces per key, rolling: one output per input, the first row of a key as it is."""

    def open(self) -> None:
        super().open()
        self._state = self.context.internal_value_state(REDUCED_STATE, self.operator.output_type)

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        reduce, state = reducing(self.function.reduce, self.operator.output_type), self._state
        try:
            for row in rows:
                before = state.value()
                after = row if before is None else reduce(before, row)
                state.update(after)
                yield after
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error
