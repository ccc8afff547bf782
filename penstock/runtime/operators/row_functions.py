"""Row functions as stages of a pipeline of generators.

A chain is pulled from its end, one row at a time and depth first: between two input rows nothing is inside it, and a
function that yields for ever can be left in the middle, and taken up again, without a thread.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from penstock.graph.job_graph import Operator
from penstock.graph.logical import OperatorKind
from penstock.runtime.failures import USER_ERRORS, OperatorFailure
from penstock.runtime.operators.runtime_context import ElementContext, SubtaskRuntimeContext

Stage = Callable[[Iterator[Any]], Iterator[Any]]


class RowOperator:
    """One user function. `pipe` connects it behind a stage."""

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


def _no_rows(operator: str, made: Any) -> OperatorFailure | None:
    """The error of a function that returned something else than rows."""
    if made is None or hasattr(made, "__iter__"):
        return None
    told = f"it must yield its rows, or return an iterable of them or None; it returned {made!r:.80}"
    return OperatorFailure(operator, TypeError(told), ours=True)


class FlatMapOperator(RowOperator):
    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        expand = self.function.flat_map
        made: Any = None
        try:
            for row in rows:
                made = expand(row)
                if made is not None:
                    yield from made
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise _no_rows(self.operator.name, made) or OperatorFailure(self.operator.name, error) from error


class ProcessOperator(RowOperator):
    """Keyed or not: the current key is set where the rows enter the chain."""

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self._element = ElementContext(operator.name, context)

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        process, element = self.function.process_element, self._element
        made: Any = None
        try:
            for row in rows:
                made = process(row, element)
                if made is not None:
                    yield from made
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise _no_rows(self.operator.name, made) or OperatorFailure(self.operator.name, error) from error


class ReduceOperator(RowOperator):
    """A rolling reduce per key: one output per input, the first row of a key as it is."""

    def open(self) -> None:
        super().open()
        self._state = self.context.internal_value_state("_reduced", self.operator.output_type)

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        reduce, state = self.function.reduce, self._state
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


_OPERATORS: dict[OperatorKind, type[RowOperator]] = {
    OperatorKind.MAP: MapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: ProcessOperator,
    OperatorKind.REDUCE: ReduceOperator,
}


def create_row_operator(operator: Operator, context: SubtaskRuntimeContext) -> RowOperator:
    return _OPERATORS[operator.kind](operator, context)
