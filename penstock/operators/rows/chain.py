"""Runs the row functions of a vertex, from rows in to rows out, one bounded slice at a time.

A slice ends when its rows, or its timers, are finished, when its time is up, or when a function has emitted so much
that the outputs are full. In the last case its generator is kept, and nothing else of the subtask runs before it is
exhausted. A row's event time goes alongside it: it is set when the row, or the timer, enters, and read when a row
leaves.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any, Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.graph.job_graph import Vertex
from penstock.operators.batches import row_type, timestamp_column, with_timestamps
from penstock.operators.event_time.timers import Timer, Timers
from penstock.operators.rows.element import CurrentElement, SideRow
from penstock.operators.rows.isolation import isolation
from penstock.operators.rows.row_functions import RowOperator
from penstock.state.backend import SliceAccess

_PULLED_AT_ONCE = 256
"""The number of output rows after which the room of the outputs is checked again."""
_PULLED_FOR_BARRIER = 8
"""The factor for a pull while a barrier waits for the rest of a row: larger batches are made, and stored, faster."""
_ROWS_BETWEEN_CLOCKS = 16
_PLACE_IN_BATCH = re.compile(r"^row [0-9]+")
"""The place of a row in an encoder's error; where batches end means nothing to a user."""

Emit = Callable[[pa.RecordBatch, "list[Any] | None", "str | None"], None]
"""(batch, the same as Python objects if they are at hand, id of the side output)"""
HasRoom = Callable[[], bool]
TakeTimer = Callable[[], "Timer | None"]


class Slice:
    """Tracks rows, or timers, on their way through a chain. `taken`: how many entered. All but the last are fully
    processed; the last one is once `finished`. A `whole` slice ends neither early nor at its deadline, because a reader
    counts its rows.
    """

    __slots__ = (
        "rows", "keys", "key_groups", "timestamps", "input_index", "start", "end", "taken", "deadline_ms", "stopped",
        "pulled", "finished", "whole",
    )  # fmt: skip

    def __init__(
        self,
        rows: Sequence[Any],
        keys: Sequence[Any] | None,
        key_groups: Sequence[int] | None,
        start: int,
        end: int,
        deadline_ms: float,
        whole: bool = False,
        timestamps: Sequence[int | None] | None = None,
        input_index: int = 0,
    ) -> None:
        self.rows = rows
        self.keys = keys
        self.key_groups = key_groups
        self.timestamps = timestamps
        self.input_index = input_index
        self.start = start
        self.end = end
        self.taken = 0
        self.deadline_ms = math.inf if whole else deadline_ms
        self.stopped = False
        self.pulled: Iterator[Any] | None = None
        self.finished = False
        self.whole = whole

    def stop(self) -> None:
        """Let no further row or timer enter, unless the slice is `whole`."""
        self.stopped = not self.whole


class Chain:
    """Connects the vertex's row `functions`, head first. `emit` queues output rows. `has_room`: whether the outputs
    take more; `may_overdraw`: whether they do while a barrier waits for the rest of a row's output. `set_key` is called
    with (key, key group) before each row of a keyed head; `timers` are that head's. `element` is what its functions'
    contexts look at. `side_types`: the types of the side outputs that have a consumer. `stamps`: whether output batches
    have a column of event times. `state`: what to call before and after each slice of a keyed head.
    """

    due_in_ms: float | None = None
    """None: only columnar chains hold rows for batches."""

    def __init__(
        self,
        vertex: Vertex,
        functions: list[RowOperator],
        emit: Emit,
        has_room: HasRoom,
        may_overdraw: HasRoom,
        set_key: Callable[[Any, int], None] | None,
        object_reuse: bool,
        clock_ms: Callable[[], float],
        element: CurrentElement | None = None,
        timers: Timers | None = None,
        side_types: Mapping[str, TypeInformation | None] | None = None,
        stamps: bool = False,
        state: SliceAccess | None = None,
        limits: Limits = USUAL,
    ) -> None:
        self._clock_ms = clock_ms
        self._may_overdraw = may_overdraw
        self._functions = functions
        self._emit = emit
        self._has_room = has_room
        self._set_key = set_key
        self._state = state
        self._element = element or CurrentElement()
        self.timers = timers
        self._stamps = stamps
        self._side_types = {tag: row_type(declared) for tag, declared in (side_types or {}).items()}
        self.keyed = functions[0].operator.kind.keyed
        self._output_type = row_type(functions[-1].operator.output_type)
        self._output_operator = functions[-1].operator.name
        isolations = [isolation(f.operator.output_type, f.operator.name) for f in functions]
        self._isolate_output = isolations[-1]
        if self._side_types:
            self._isolate_output = _isolate_tagged(isolations[-1], side_types or {}, self._output_operator)
        self._isolate_between = [None if object_reuse else isolate for isolate in isolations[:-1]]
        self._unfinished: Slice | None = None
        self._pulled_at_once = _PULLED_AT_ONCE if limits.pulled_at_once is None else limits.pulled_at_once
        between = limits.rows_between_clocks
        self._rows_between_clocks = _ROWS_BETWEEN_CLOCKS if between is None else between

    @staticmethod
    def slice_rows(budget_rows: int) -> int:
        """Return the number of rows of the next slice."""
        return budget_rows

    @property
    def head(self) -> RowOperator:
        """Return the operator that rows enter first."""
        return self._functions[0]

    @property
    def unfinished(self) -> bool:
        """Return whether a function was left in the middle of its output."""
        return self._unfinished is not None

    @property
    def late_rows(self) -> int:
        """Return the number of dropped late rows."""
        return sum(f.late_rows for f in self._functions)

    def open(self) -> None:
        for function in self._functions:
            function.open()

    def close(self) -> None:
        """Close every function, even if others raise; the first error is raised at the end."""
        first: OperatorFailure | None = None
        for function in self._functions:
            try:
                function.close()
            except OperatorFailure as error:
                first = first or error
        if first is not None:
            raise first

    def run(self, piece: Slice) -> bool:
        """Push a slice through. Returns False if the outputs are full in the middle of it: call `resume` when there is
        room.
        """
        if self._state is not None and piece.keys is not None and piece.key_groups is not None:
            self._state.prepare(piece.keys, piece.key_groups, piece.start, piece.end)
        rows = self._feed(piece) if piece.keys is None else self._feed_keyed(piece)
        if piece.timestamps is not None:
            rows = self._timed(rows, piece.timestamps, piece.start)
        return self._start(piece, self._functions[0].pipe_input(rows, piece.input_index))

    def fire(self, piece: Slice, take: TakeTimer, event_time: bool) -> bool:
        """Fire due timers, as many as the time of the (empty) `piece` allows, like rows of a slice."""
        return self._start(piece, self._functions[0].fire(self._feed_timers(piece, take, event_time)))

    def _start(self, piece: Slice, rows: Iterator[Any]) -> bool:
        for function, isolate in zip(self._functions[1:], self._isolate_between):
            # 7.2: values that can change are copied between operators.
            rows = function.pipe(rows if isolate is None else map(isolate, rows))
        if self._isolate_output is not None:
            rows = map(self._isolate_output, rows)
        piece.pulled = rows
        self._unfinished = piece
        return self.resume(drain=False)

    def resume(self, drain: bool) -> bool:
        """Continue an unfinished slice. `drain`: only the input row that it is in the middle of, with all of its
        output, as far as the overdraft goes (a barrier waits). Returns whether it is finished.
        """
        piece = self._unfinished
        assert piece is not None and piece.pulled is not None
        if drain:
            piece.stop()
        while True:
            rows_max = self._pulled_at_once * (_PULLED_FOR_BARRIER if drain else 1)
            made, stamps = self._pull(piece.pulled, rows_max)
            if made:
                self._emit_made(made, stamps)
            if len(made) < rows_max:
                piece.finished = True
                self._unfinished = None
                if self._state is not None:
                    self._state.settle()
                return True
            if not (self._may_overdraw() if drain else self._has_room()):
                return False

    def _pull(self, pulled: Iterator[Any], rows_max: int) -> tuple[list[Any], list[int | None] | None]:
        if not self._stamps:
            return list(islice(pulled, rows_max)), None
        element = self._element
        made, stamps = [], []
        for row in islice(pulled, rows_max):
            made.append(row)
            stamps.append(element.timestamp_ms)
        return made, stamps

    def _emit_made(self, made: list[Any], stamps: list[int | None] | None) -> None:
        if not self._side_types:
            self._emit_made_rows(made, stamps, self._output_type, None)
            return
        for tag, output_type in ((None, self._output_type), *self._side_types.items()):
            places = [i for i, row in enumerate(made) if (row.tag if type(row) is SideRow else None) == tag]
            if places:
                rows = [made[i] if tag is None else made[i].value for i in places]
                self._emit_made_rows(rows, [stamps[i] for i in places] if stamps else None, output_type, tag)

    def _emit_made_rows(
        self, made: list[Any], stamps: list[int | None] | None, output_type: TypeInformation, tag: str | None
    ) -> None:
        try:
            arrays = output_type.encode(made)
        except RowTypeError as error:
            bad = made[error.row_index] if 0 <= error.row_index < len(made) else "?"
            told = _PLACE_IN_BATCH.sub("a row that it put out", str(error))
            where = f" (side output '{tag}')" if tag is not None else ""
            raise OperatorFailure(
                self._output_operator, TypeError(f"{told}{where}; the row was {bad!r:.200}"), ours=True
            ) from error
        except Exception as error:
            raise OperatorFailure(self._output_operator, error) from error
        batch = pa.RecordBatch.from_arrays(arrays, schema=output_type.schema)
        if stamps is not None:
            batch = with_timestamps(batch, timestamp_column(stamps))
        self._emit(batch, made, tag)

    def _feed(self, piece: Slice) -> Iterator[Any]:
        rows, start, end, clock_ms = piece.rows, piece.start, piece.end, self._clock_ms
        rows_between_clocks = self._rows_between_clocks
        for index in range(start, end):
            if piece.stopped:
                return
            piece.taken += 1
            yield rows[index]
            if not piece.taken % rows_between_clocks and clock_ms() > piece.deadline_ms:
                return

    def _feed_keyed(self, piece: Slice) -> Iterator[Any]:
        rows, keys, key_groups, set_key = piece.rows, piece.keys, piece.key_groups, self._set_key
        clock_ms, rows_between_clocks = self._clock_ms, self._rows_between_clocks
        assert keys is not None and key_groups is not None and set_key is not None
        for index in range(piece.start, piece.end):
            if piece.stopped:
                return
            piece.taken += 1
            set_key(keys[index], key_groups[index])
            yield rows[index]
            if not piece.taken % rows_between_clocks and clock_ms() > piece.deadline_ms:
                return

    def _timed(self, rows: Iterator[Any], timestamps: Sequence[int | None], start: int) -> Iterator[Any]:
        element = self._element
        for row, timestamp_ms in zip(rows, islice(timestamps, start, None)):
            element.timestamp_ms = timestamp_ms
            yield row

    def _feed_timers(self, piece: Slice, take: TakeTimer, event_time: bool) -> Iterator[Timer]:
        element, clock_ms = self._element, self._clock_ms
        rows_between_clocks = self._rows_between_clocks
        while not piece.stopped and (timer := take()) is not None:
            piece.taken += 1
            element.timestamp_ms = timer.timestamp_ms if event_time else None
            element.event_timer = event_time
            yield timer
            if not piece.taken % rows_between_clocks and clock_ms() > piece.deadline_ms:
                return


def _isolate_tagged(
    main: Callable[[Any], Any] | None, side_types: Mapping[str, TypeInformation | None], operator: str
) -> Callable[[Any], Any]:
    """Isolate an output that contains rows of side outputs, too."""
    by_tag = {tag: isolation(declared, operator) for tag, declared in side_types.items()}

    def isolated(row: Any) -> Any:
        if type(row) is not SideRow:
            return row if main is None else main(row)
        isolate = by_tag[row.tag]
        return row if isolate is None else SideRow(row.tag, isolate(row.value))

    return isolated
