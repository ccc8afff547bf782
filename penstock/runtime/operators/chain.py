"""The operators of a vertex, from batches in to rows out, one bounded slice at a time.

A slice ends when its rows are through, when its time is up, or when a function has put out so much that the outputs
are full. In the last case its generator is kept, and nothing else of the subtask runs before it is exhausted.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any, Callable, Iterator, Sequence

import pyarrow as pa

from penstock.common.typeinfo import RowTypeError
from penstock.graph.job_graph import Vertex
from penstock.graph.logical import OperatorKind
from penstock.runtime.batches import row_type
from penstock.runtime.failures import OperatorFailure
from penstock.runtime.operators.isolation import isolation
from penstock.runtime.operators.row_functions import RowOperator

_PULLED_AT_ONCE = 256
"""Output rows between two looks at the outputs' room."""
_ROWS_BETWEEN_CLOCKS = 16
_KEYED = (OperatorKind.KEYED_PROCESS, OperatorKind.REDUCE)
_PLACE_IN_BATCH = re.compile(r"^row [0-9]+")
"""In an encoder's error; where batches end means nothing to a user."""

Emit = Callable[[pa.RecordBatch, "list[Any] | None"], None]
HasRoom = Callable[[], bool]


class Slice:
    """Input rows on their way through a chain. `taken` rows have entered; all but the last of them, and that one too
    once `finished`, are through. A `whole` slice ends neither early nor at its deadline: a reader counts its rows."""

    __slots__ = (
        "rows", "keys", "key_groups", "start", "end", "taken", "deadline_ms", "stopped", "pulled", "finished", "whole",
    )  # fmt: skip

    def __init__(
        self, rows: Sequence[Any], keys: Sequence[Any] | None, key_groups: Sequence[int] | None,
        start: int, end: int, deadline_ms: float, whole: bool = False,
    ) -> None:  # fmt: skip
        self.rows = rows
        self.keys = keys
        self.key_groups = key_groups
        self.start = start
        self.end = end
        self.taken = 0
        self.deadline_ms = math.inf if whole else deadline_ms
        self.stopped = False
        self.pulled: Iterator[Any] | None = None
        self.finished = False
        self.whole = whole

    def stop(self) -> None:
        """No further input row enters, but for a `whole` slice."""
        self.stopped = not self.whole


class Chain:
    """`functions` are the vertex's row functions, head first (none for a bare source or sink: then batches pass
    untouched). `emit` queues output rows. `has_room`: whether the outputs take more; `may_overdraw`: whether they do
    while a barrier waits for the rest of a row's output. `set_key` is called with (key, key group) before each row of
    a keyed head."""

    def __init__(
        self, vertex: Vertex, functions: list[RowOperator], emit: Emit, has_room: HasRoom,
        may_overdraw: HasRoom, set_key: Callable[[Any, int], None] | None, object_reuse: bool,
        clock_ms: Callable[[], float],
    ) -> None:  # fmt: skip
        self._clock_ms = clock_ms
        self._may_overdraw = may_overdraw
        self._functions = functions
        self._emit = emit
        self._has_room = has_room
        self._set_key = set_key
        self.keyed = bool(functions) and functions[0].operator.kind in _KEYED
        self._output_type = row_type(functions[-1].operator.output_type) if functions else None
        self._output_operator = functions[-1].operator.name if functions else vertex.name
        isolations = [isolation(f.operator.output_type, f.operator.name) for f in functions]
        self._isolate_output = isolations[-1] if functions else None
        self._isolate_between = [None if object_reuse else isolate for isolate in isolations[:-1]]
        self._unfinished: Slice | None = None

    @property
    def passes_batches(self) -> bool:
        return not self._functions

    @property
    def unfinished(self) -> bool:
        """Whether a function was left in the middle of its output."""
        return self._unfinished is not None

    def open(self) -> None:
        for function in self._functions:
            function.open()

    def close(self) -> None:
        """Closes every function, whatever others raise; the first error is raised at the end."""
        first: OperatorFailure | None = None
        for function in self._functions:
            try:
                function.close()
            except OperatorFailure as error:
                first = first or error
        if first is not None:
            raise first

    def run(self, piece: Slice) -> bool:
        """Pushes a slice through. False: the outputs are full in the middle of it, call `resume` when there is room."""
        rows = self._feed_keyed(piece) if self.keyed else self._feed(piece)
        last = len(self._functions) - 1
        for index, function in enumerate(self._functions):
            rows = function.pipe(rows)
            if index < last and (isolate := self._isolate_between[index]) is not None:
                rows = map(isolate, rows)
        if self._isolate_output is not None:
            rows = map(self._isolate_output, rows)
        piece.pulled = rows
        self._unfinished = piece
        return self.resume(drain=False)

    def resume(self, drain: bool) -> bool:
        """Goes on with an unfinished slice. `drain`: only with the input row that it is in the middle of, and with
        all that this puts out, as far as the overdraft goes (a barrier waits). Returns whether it is through."""
        piece = self._unfinished
        assert piece is not None and piece.pulled is not None
        if drain:
            piece.stop()
        while True:
            made = list(islice(piece.pulled, _PULLED_AT_ONCE))
            if made:
                self._put_out(made)
            if len(made) < _PULLED_AT_ONCE:
                piece.finished = True
                self._unfinished = None
                return True
            if not (self._may_overdraw() if drain else self._has_room()):
                return False

    def _put_out(self, made: list[Any]) -> None:
        assert self._output_type is not None
        try:
            arrays = self._output_type.encode(made)
        except RowTypeError as error:
            bad = made[error.row_index] if 0 <= error.row_index < len(made) else "?"
            told = _PLACE_IN_BATCH.sub("a row that it put out", str(error))
            raise OperatorFailure(
                self._output_operator, TypeError(f"{told}; the row was {bad!r:.200}"), ours=True
            ) from error
        except Exception as error:
            raise OperatorFailure(self._output_operator, error) from error
        self._emit(pa.RecordBatch.from_arrays(arrays, schema=self._output_type.schema), made)

    def _feed(self, piece: Slice) -> Iterator[Any]:
        rows, start, end, clock_ms = piece.rows, piece.start, piece.end, self._clock_ms
        for index in range(start, end):
            if piece.stopped:
                return
            piece.taken += 1
            yield rows[index]
            if not piece.taken % _ROWS_BETWEEN_CLOCKS and clock_ms() > piece.deadline_ms:
                return

    def _feed_keyed(self, piece: Slice) -> Iterator[Any]:
        rows, keys, key_groups, set_key = piece.rows, piece.keys, piece.key_groups, self._set_key
        clock_ms = self._clock_ms
        assert keys is not None and key_groups is not None and set_key is not None
        for index in range(piece.start, piece.end):
            if piece.stopped:
                return
            piece.taken += 1
            set_key(keys[index], key_groups[index])
            yield rows[index]
            if not piece.taken % _ROWS_BETWEEN_CLOCKS and clock_ms() > piece.deadline_ms:
                return
