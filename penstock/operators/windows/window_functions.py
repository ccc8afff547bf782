"""Calls the user's functions of a window over rows: those that fold rows, and the one that gets the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.row_types.named_rows import reducing
from penstock.datastream.functions import KeyedStateStore, ProcessWindowFunction
from penstock.datastream.window import Window
from penstock.graph.declared_functions import AnyWindowSpec
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext


class WindowFunctions:
    """Opens, calls and closes the functions of a window as one. A window keeps its rows, or what they are folded to:
    `fold` is the function (kept, row) -> kept, and `merge` the function (kept, other kept) -> kept.
    """

    def __init__(self, spec: AnyWindowSpec) -> None:
        self._spec = spec
        self._functions = [f for f in (spec.reduce, spec.aggregate, spec.process) if f is not None]
        self.fold: Callable[[Any, Any], Any]
        self.merge: Callable[[Any, Any], Any]
        if spec.reduce is not None:
            self.fold = self.merge = reducing(spec.reduce.reduce, spec.element_type)
        elif (aggregate := spec.aggregate) is not None:
            add = aggregate.add
            self.fold = lambda kept, row: add(row, kept)
            self.merge = aggregate.merge
        else:
            self.fold = _append
            self.merge = lambda kept, other: [*kept, *other]
        self.result = self._firing()

    def open(self, context: SubtaskRuntimeContext) -> None:
        for function in self._functions:
            function.open(context)

    def close(self) -> None:
        for function in self._functions:
            function.close()

    def first(self, row: Any) -> Any:
        """Return the accumulator of a window after its first row."""
        if self._spec.reduce is not None:
            return row
        if self._spec.aggregate is not None:
            return self._spec.aggregate.add(row, self._spec.aggregate.create_accumulator())
        return [row]

    @property
    def folds(self) -> bool:
        """Return whether a window keeps one value in place of its rows."""
        return self._spec.reduce is not None or self._spec.aggregate is not None

    def folded(self, rows: list[Any]) -> Any:
        """Return the contents of a window of these rows; at least one if they are folded."""
        if not self.folds:
            return rows
        kept = self.first(rows[0])
        for row in rows[1:]:
            kept = self.fold(kept, row)
        return kept

    def _firing(self) -> Callable[[Any, WindowContext], Any]:
        """Return the function (kept, context) -> rows of a window that fires."""
        spec, aggregate, function = self._spec, self._spec.aggregate, self._spec.process

        def elements(kept: Any) -> list[Any]:
            if aggregate is not None:
                return [aggregate.get_result(kept)]
            return [kept] if spec.reduce is not None else list(kept)

        if function is None:
            return lambda kept, context: elements(kept)
        if isinstance(function, ProcessWindowFunction):
            return lambda kept, context: function.process(context.key(), context, elements(kept))
        return lambda kept, context: function.apply(context.key(), context.window(), elements(kept))

    def clear(self, context: WindowContext) -> None:
        """Let the function clear its state of a window that is discarded."""
        if isinstance(self._spec.process, ProcessWindowFunction):
            self._spec.process.clear(context)


def _append(kept: list[Any], row: Any) -> list[Any]:
    kept.append(row)
    return kept


class WindowContext(ProcessWindowFunction.Context[Window]):
    """Gives functions the window that fires, or is discarded. `is_merging`: windows are merged."""

    _state_key: Any
    _window: Window

    def __init__(self, context: SubtaskRuntimeContext, is_merging: bool) -> None:
        self._context = context
        self._is_merging = is_merging
        self.key = context.current_key

    def at(self, state_key: Any, window: Window) -> WindowContext:
        """Return this context for another window, which state names `state_key`."""
        self._state_key, self._window = state_key, window
        return self

    def window(self) -> Window:
        return self._window

    def current_watermark(self) -> int:
        return self._context.current_watermark_ms()

    def current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def global_state(self) -> KeyedStateStore:
        return self._context

    def window_state(self) -> KeyedStateStore:
        if self._is_merging:
            raise TypeError(
                "windows that are merged have no state of their own, because a row may merge two of them: keep it in "
                "global_state(), by the window's start"
            )
        return self._context.of_window(self._state_key)
