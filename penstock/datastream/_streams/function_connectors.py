"""Runs a function as a source or a sink, for `add_source` and `add_sink`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa

from penstock.common.metrics import MetricGroup
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.common.types import PICKLED
from penstock.connectors.base import (
    FixedSplitEnumerator,
    MalformedRecord,
    NotReady,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
    WriterContext,
    encode_split,
)
from penstock.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
)

_SPLIT = encode_split({"function": 0})
_PAUSE_MS = 10.0
"""The pause after a function has yielded None."""


class CallableSource(SourceFunction):
    """Runs a function without parameters that returns the rows, such as a generator function."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self._func = func

    def run(self) -> Any:
        return self._func()


class CallableSink(SinkFunction):
    """Calls a function with each row."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self._func = func

    def invoke(self, value: Any) -> None:
        self._func(value)


class FunctionSource(Source):
    """Reads the rows that a `SourceFunction` yields. One subtask runs it."""

    def __init__(self, function: SourceFunction, type_info: TypeInformation | None) -> None:
        self._function = function
        self._type_info = type_info
        self.bounded = function.bounded

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def describe(self) -> dict[str, str]:
        return {"connector": "function", "function": type(self._function).__name__}

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return FixedSplitEnumerator([_SPLIT]) if restored is None else FixedSplitEnumerator.restored(restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        keeps_state = isinstance(self._function, CheckpointedFunction)
        kind = _CheckpointedReader if keeps_state else _FunctionReader
        return kind(self._function, self._type_info or PICKLED, _SubtaskContext(context))


class _FunctionReader(SourceReader):
    """Pulls rows from the function's generator. It begins when the split comes, after the function's state."""

    def __init__(self, function: SourceFunction, type_info: TypeInformation, context: RuntimeContext) -> None:
        self._function = function
        self._type = type_info
        self._context = context
        self._rows: Iterator[Any] | None = None
        self._is_open = self._has_split = self._no_more = False
        self._read = 0

    def add_splits(self, splits: list[bytes]) -> None:
        self._has_split = True

    def no_more_splits(self) -> None:
        self._no_more = True

    def splits_in_hand(self) -> list[str]:
        return [""] if self._has_split else []

    def snapshot(self) -> list[bytes]:
        return [_SPLIT] if self._has_split else []

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self._has_split:
            return None if self._no_more else NotReady(None)
        if self._rows is None:
            self._is_open = True
            self._function.open(self._context)
            self._rows = iter(self._function.run())
        found: list[Any] = []
        for row in self._rows:
            if row is None:
                break
            found.append(row)
            if len(found) >= rows_max:
                break
        else:
            self._has_split = bool(found)  # the next call finds the end again, and nothing else
            if not found:
                return None if self._no_more else NotReady(None)
        return self._encoded(found) if found else NotReady(_PAUSE_MS)

    def _encoded(self, rows: list[Any]) -> pa.RecordBatch:
        try:
            batch = pa.RecordBatch.from_arrays(self._type.encode(rows), schema=self._type.schema)
        except RowTypeError as error:
            place = f"row {self._read + error.row_index} of {type(self._function).__name__}"
            raise MalformedRecord(re.sub(r"^row [0-9]+", place, str(error))) from error
        self._read += len(rows)
        return batch

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._function.close()


class _CheckpointedReader(_FunctionReader, CheckpointedFunction):
    """Has the function bring its state up to date for checkpoints."""

    _function: Any

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._function.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._function.snapshot_state(context)


class FunctionSink(Sink):
    """Calls a `SinkFunction` with each row."""

    def __init__(self, function: SinkFunction) -> None:
        self._function = function

    def describe(self) -> dict[str, str]:
        return {"connector": "function", "function": type(self._function).__name__}

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        keeps_state = isinstance(self._function, CheckpointedFunction)
        kind = _CheckpointedWriter if keeps_state else _FunctionWriter
        return kind(self._function, context.input_type or PICKLED, _SubtaskContext(context))


class _FunctionWriter(SinkWriter):
    def __init__(self, function: SinkFunction, type_info: TypeInformation, context: RuntimeContext) -> None:
        self._function = function
        self._type = type_info
        self._context = context
        self._is_open = False

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._is_open:
            self._is_open = True
            self._function.open(self._context)
        invoke = self._function.invoke
        for row in self._type.decode(batch):
            invoke(row)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._function.close()


class _CheckpointedWriter(_FunctionWriter, CheckpointedFunction):
    """Has the function bring its state up to date for checkpoints."""

    _function: Any

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._function.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._function.snapshot_state(context)


class _SubtaskContext(RuntimeContext):
    """Describes the subtask of a source or sink to its function."""

    def __init__(self, context: ReaderContext | WriterContext) -> None:
        self._given = context

    def get_task_name(self) -> str:
        return self._given.operator_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._given.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._given.parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._given.subtask

    def get_attempt_number(self) -> int:
        return 0

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._given.operator_name} ({self._given.subtask + 1}/{self._given.parallelism})"

    def get_metrics_group(self) -> MetricGroup:
        return super().get_metrics_group() if self._given.metrics is None else self._given.metrics

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return default_value

    def _no_state(self, state_descriptor: Any) -> NoReturn:
        raise RuntimeError(
            f"operator {self._given.operator_name!r} asks for keyed state, which sources and sinks do not have: make "
            "the function a CheckpointedFunction, too, whose state is that of its subtask"
        )

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _no_state


def source_of(given: Any, type_info: TypeInformation | None) -> FunctionSource | None:
    """Return the source of a function; None if it is none, such as a `Source`."""
    if isinstance(given, SourceFunction):
        return FunctionSource(given, type_info)
    if callable(given) and not isinstance(given, type) and not hasattr(given, "create_reader"):
        try:
            inspect.signature(given).bind()
        except TypeError:
            raise TypeError(
                f"add_source() takes a Source, a SourceFunction, or a function without parameters that "
                f"returns rows; {given!r} has parameters"
            ) from None
        except ValueError:
            pass  # it does not tell its parameters
        return FunctionSource(CallableSource(given), type_info)
    return None


def sink_of(given: Any) -> FunctionSink | None:
    """Return the sink of a function; None if it is none, such as a `Sink`."""
    if isinstance(given, SinkFunction):
        return FunctionSink(given)
    if callable(given) and not isinstance(given, type) and not hasattr(given, "create_writer"):
        return FunctionSink(CallableSink(given))
    return None
