"""Joins each row of a key with those of another stream whose time lies in an interval around its own.

Each side keeps its rows by their times, as map state of the key, until no row that is still to come can meet them. A
timer of the key at that time removes them. Rows that come behind the watermark are late: a row that they would meet may
be gone already.
"""

from __future__ import annotations

from typing import Any, Iterator

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.row_types.columns import ColumnType
from penstock.common.types import PICKLED, ListType, Types
from penstock.datastream._streams.join_functions import IntervalJoined
from penstock.datastream.functions import ProcessJoinFunction
from penstock.graph.job_graph import Operator
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.row_functions import RowOperator, no_rows, split_side_outputs
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.protocol.values.elements import WATERMARK_MAX_MS

_NO_TIMESTAMP = (
    "a row without event time cannot be joined by an interval: its timestamp is None. Give every row of both streams "
    "one (assign_timestamps_and_watermarks with a timestamp assigner)"
)


class IntervalJoinOperator(RowOperator):
    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self.function: IntervalJoined = operator.function
        self._element = context.element
        self._pair = _Pair()
        lower_ms, upper_ms = self.function.interval.lower_ms, self.function.interval.upper_ms
        self._intervals = (lower_ms, upper_ms), (-upper_ms, -lower_ms)
        """For each side: which times of the other side a row meets, relative to its own."""
        # 5.13: a row with the time of the watermark is not late, as in Flink, so it still finds those that it may meet.
        self._stays_ms = max(0, upper_ms) + 1, max(0, -lower_ms) + 1
        """For each side: how long a row is kept."""
        self.late_rows = 0

    def open(self) -> None:
        super().open()
        self._sides = tuple(
            self.context.internal_map_state(name, Types.LONG(), _rows_of(declared))
            for name, declared in zip(("_interval_left", "_interval_right"), self.function.types)
        )
        self._timers = self.context.keyed_timers()

    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        element, name, watermark = self._element, self.operator.name, self.context.current_watermark_ms
        own, other = self._sides[input_index], self._sides[1 - input_index]
        lower_ms, upper_ms = self._intervals[input_index]
        try:
            for row in rows:
                time_ms = element.timestamp_ms
                if time_ms is None:
                    raise OperatorFailure(name, ValueError(f"{_NO_TIMESTAMP}; the row was {row!r:.200}"), ours=True)
                if time_ms < watermark():
                    yield from self._late(row, input_index)
                    continue
                kept = own.get(time_ms)
                if kept is None:
                    own.put(time_ms, [row])
                    self._timers.register_event(min(time_ms + self._stays_ms[input_index], WATERMARK_MAX_MS))
                else:
                    kept.append(row)
                    own.put(time_ms, kept)
                for met_ms in sorted(t for t in other if time_ms + lower_ms <= t <= time_ms + upper_ms):
                    for met in list(other.get(met_ms)):
                        if input_index == 0:
                            yield from self._joined(row, met, time_ms, met_ms)
                        else:
                            yield from self._joined(met, row, met_ms, time_ms)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(name, error) from error

    def _joined(self, left: Any, right: Any, left_ms: int, right_ms: int) -> Iterator[Any]:
        self._element.timestamp_ms = max(left_ms, right_ms)
        made = self.function.wrapped.process_element(left, right, self._pair.at(left_ms, right_ms))
        if (refusal := no_rows(self.operator.name, made)) is not None:
            raise refusal
        if made is not None:
            yield from split_side_outputs(made, self.operator.side_outputs)

    def _late(self, row: Any, input_index: int) -> Iterator[Any]:
        tag = self.function.late_tags[input_index]
        if tag is None:
            self.late_rows += 1
        elif tag in self.operator.side_outputs:
            yield SideRow(tag, row)

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        """Remove the rows that no row to come can meet. Yields nothing."""
        for timer in timers:
            for side, stays_ms in zip(self._sides, self._stays_ms):
                if timer.timestamp_ms == WATERMARK_MAX_MS:
                    side.clear()
                else:
                    side.remove(timer.timestamp_ms - stays_ms)
        yield from ()


def _rows_of(declared: Any) -> Any:
    return ListType(declared) if isinstance(declared, ColumnType) else PICKLED


class _Pair(ProcessJoinFunction.Context):
    """Gives functions the times of two rows."""

    _left_ms = _right_ms = 0

    def at(self, left_ms: int, right_ms: int) -> _Pair:
        self._left_ms, self._right_ms = left_ms, right_ms
        return self

    def get_left_timestamp(self) -> int:
        return self._left_ms

    def get_right_timestamp(self) -> int:
        return self._right_ms

    def get_timestamp(self) -> int:
        return max(self._left_ms, self._right_ms)
