"""Runs an async function: begins calls, takes their answers, and asks again or gives up as the program says.

All of it happens in the subtask's thread, between two slices; only the calls themselves run elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Row
from penstock.graph.declared_functions import AsyncSpec
from penstock.graph.job_graph import Operator
from penstock.operators.batches import row_type
from penstock.operators.calls.call_queue import Call, CallBatch, CallQueue
from penstock.operators.calls.call_runner import Invocation, NewCallRunner
from penstock.operators.rows.row_functions import RowOperator
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext

_SHOWN_MAX = 200
"""The greatest number of characters of a row in an error."""


class AsyncOperator(RowOperator):
    """Runs as the head of a chain. Its rows are answers: lists of rows."""

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        spec: AsyncSpec = operator.function
        self.spec = spec
        self.function = spec.function
        self.queue = CallQueue(spec.capacity, spec.ordered)
        self._input_type: TypeInformation = row_type(operator.input_type)
        self._open: dict[int, Call] = {}
        """The calls that were begun and have no answer, by number, in the order of their first attempts. Those that
        wait for another attempt are among them."""
        self._unsent: list[Call] = []
        """Restored calls that have not been begun, the last one first."""
        self._retries: list[tuple[float, int]] = []
        """A heap of further attempts: when they are due, and the number of the call."""
        self._numbers = 0
        predicate = spec.retry.get_retry_predicate()
        self._retries_result = predicate.result_predicate()
        self._retries_error = predicate.exception_predicate()

    def start(self, new_runner: NewCallRunner, wake: Any, name: str, subtask: int) -> None:
        """Create the runner of the calls. Called before `open`. `wake`: wakes the subtask when there are answers."""
        blocks = self.spec.is_blocking
        invoke = self.function.invoke if blocks else self.function.async_invoke
        self._runner = new_runner(Invocation(invoke, blocks, self.spec.capacity, wake, name, subtask))

    def close(self) -> None:
        # The runner first: `close` of the function releases the connections that calls use.
        self._runner.close()
        super().close()

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        for answer in rows:
            yield from answer

    # ---- rows that come -----------------------------------------------------------------------------------------

    def submit(
        self, origin: CallBatch, rows: Sequence[Any], timestamps: Sequence[int | None] | None, now_ms: float
    ) -> None:
        """Begin the calls of new rows. `rows`: those of `origin`, decoded for this call only."""
        begun = []
        for index, row in enumerate(rows):
            call = Call(self._numbers, origin, index, None if timestamps is None else timestamps[index])
            self._numbers += 1
            self.queue.add(call)
            self._note_begun(call, now_ms)
            begun.append((call.number, row))
        self._runner.begin(begun)

    def restore(self, calls: Iterable[tuple[CallBatch, int, int | None, list[Any] | None]], watermarks: Any) -> None:
        """Queue the calls of a checkpoint: (origin, index, timestamp, answer if there was one). `watermarks`: see
        `CallQueue.watermarks`.
        """
        behind = list(watermarks)
        for position, (origin, index, timestamp_ms, answer) in enumerate(calls):
            while behind and behind[0][0] <= position:
                self.queue.add_watermark(behind.pop(0)[1])
            call = Call(self._numbers, origin, index, timestamp_ms)
            self._numbers += 1
            # 7.4: an answer that a checkpoint has is not asked for again.
            call.answer = answer
            self.queue.add(call)
            if answer is None:
                self._unsent.append(call)
        for _, watermark_ms in behind:
            self.queue.add_watermark(watermark_ms)
        self._unsent.reverse()

    def _note_begun(self, call: Call, now_ms: float) -> None:
        call.attempts = 1
        if self.spec.timeout_ms is not None:
            call.expires_ms = now_ms + self.spec.timeout_ms
        self._open[call.number] = call

    def row_of(self, call: Call) -> Any:
        """Return the row of a call as it came, whatever the function has changed in the one that it got."""
        row = self._input_type.decode(self._columns(call.origin.batch.slice(call.index, 1)))
        return row[0]

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self._input_type.schema.names)

    # ---- answers ------------------------------------------------------------------------------------------------

    def collect(self, now_ms: float) -> None:
        """Take the answers that have come. Raises `OperatorFailure` for a call that failed."""
        answered = self._runner.answered
        while answered:
            found = answered.popleft()
            call = self._open.get(found.number)
            if call is None:
                continue  # it was given up
            if self._asks_again(call, found.result, found.error):
                backoff_ms = self._guard(call, self.spec.retry.get_backoff_time_millis, call.attempts)
                heapq.heappush(self._retries, (now_ms + max(backoff_ms, 0), call.number))
            elif found.error is not None:
                raise self._failure(call, found.error)
            else:
                self._complete(call, found.result, "invoke" if self.spec.is_blocking else "async_invoke")

    def _asks_again(self, call: Call, result: Any, error: BaseException | None) -> bool:
        if error is not None:
            applies = self._retries_error is not None and isinstance(error, Exception)
            satisfied = applies and self._guard(call, self._retries_error, error)
        else:
            satisfied = self._retries_result is not None and self._guard(call, self._retries_result, result)
        return bool(satisfied) and bool(self._guard(call, self.spec.retry.can_retry, call.attempts))

    def _complete(self, call: Call, result: Any, method: str) -> None:
        del self._open[call.number]
        self.queue.complete(call, self._rows_of_answer(call, result, method))

    def _rows_of_answer(self, call: Call, result: Any, method: str) -> list[Any]:
        if type(result) is list:
            return list(result)
        if isinstance(result, str | bytes | Mapping | Row) or not hasattr(result, "__iter__"):
            told = "None" if result is None else f"{result!r:.80}"
            text = f"{type(self.function).__name__}.{method} returns a list of rows, [] for none; it returned {told}"
            raise self._failure(call, TypeError(text), ours=True)
        rows: list[Any] = self._guard(call, list, result)
        return rows

    def expire(self, now_ms: float) -> None:
        """Give up calls whose time is over: the function's `timeout` answers in their place."""
        if self.spec.timeout_ms is None:
            return
        while self._open:
            call = next(iter(self._open.values()))
            if call.expires_ms > now_ms:
                return
            self._runner.give_up(call.number)
            self._complete(call, self._guard(call, self.function.timeout, self.row_of(call)), "timeout")

    def send(self, now_ms: float) -> None:
        """Begin further attempts that are due, and restored calls."""
        begun = []
        while self._retries and self._retries[0][0] <= now_ms:
            _, number = heapq.heappop(self._retries)
            if (call := self._open.get(number)) is not None:
                call.attempts += 1
                begun.append((number, self.row_of(call)))
        while self._unsent and len(self._open) < self.spec.capacity:
            call = self._unsent.pop()
            self._note_begun(call, now_ms)
            begun.append((call.number, self.row_of(call)))
        if begun:
            self._runner.begin(begun)

    def due_ms(self) -> float | None:
        """Return the time of the next timeout or further attempt, on the monotonic clock; None: there is none."""
        due = [self._retries[0][0]] if self._retries else []
        if self.spec.timeout_ms is not None and self._open:
            due.append(next(iter(self._open.values())).expires_ms)
        return min(due, default=None)

    # ---- errors -------------------------------------------------------------------------------------------------

    def _guard(self, call: Call, function: Any, argument: Any) -> Any:
        try:
            return function(argument)
        except USER_ERRORS as error:
            raise self._failure(call, error) from error

    def _failure(self, call: Call, error: BaseException, ours: bool = False) -> OperatorFailure:
        try:
            shown = f"{self.row_of(call)!r:.{_SHOWN_MAX}}"
        except Exception as unspeakable:
            shown = f"(it cannot be shown: {unspeakable!r:.80})"
        return OperatorFailure(self.operator.name, error, ours, f"; it was called with the row {shown}")
