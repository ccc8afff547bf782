"""Encodes the calls of a subtask for a snapshot, and decodes them.

Rows are stored as they came through their edges, with keys. So a restore at another parallelism deals them out like
rows in flight on those edges. Answers are stored in the type of the operator's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import TIMESTAMP_COLUMN, TypeInformation
from penstock.operators.batches import row_type
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.calls.call_queue import CallBatch, by_edge, rows_of
from penstock.protocol.values.metadata import CALLS_PART, OperatorPart
from penstock.state.backend import StateSchemaError
from penstock.state.codecs import write_stream
from penstock.state.evolution import changed_text, evolution_of
from penstock.state.unpickling import decoded

_UNANSWERED = -1


class StoredCalls(msgspec.Struct, frozen=True, array_like=True):
    """Holds the calls of one old subtask, in the order of their rows.

    `edges`: the names of the edges that they came through. `rows`: an Arrow IPC stream for each. `edge_of`: the edge of
    each call, whose rows stand in its order. `answers`: the number of rows in the answer of each call, -1 without one.
    `answer_rows`: all these rows, as an Arrow IPC stream, in the type `answer_type`. `watermarks`: (number of calls
    before it, watermark).
    """

    edges: list[str]
    rows: list[bytes]
    edge_of: list[int]
    answers: list[int]
    answer_rows: bytes
    answer_type: str
    watermarks: list[tuple[int, int]]


class RestoredCall(NamedTuple):
    """Holds a call of a checkpoint: its row, and its answer if there was one."""

    origin: CallBatch
    position: int
    timestamp_ms: int | None
    answer: list[Any] | None


Mask = Callable[[pa.RecordBatch], np.ndarray]
"""A function that returns which rows of a batch belong to a subtask."""


def calls_part(operator: AsyncOperator) -> OperatorPart | None:
    """Return the calls of a subtask as a part of its snapshot; None without any. Raises `OperatorFailure`."""
    queue = operator.queue
    if queue.is_empty:
        return None
    edges = by_edge(queue.calls())
    number_of = {edge: number for number, edge in enumerate(edges)}
    batches = [rows_of(calls) for calls in edges.values()]
    calls = list(queue.calls())
    output_type = row_type(operator.operator.output_type)
    # 7.4: what has been answered is part of the snapshot, with its answer.
    made = [row for call in calls if call.answer is not None for row in call.answer]
    try:
        arrays = output_type.encode(made)
    except Exception as error:
        told = TypeError(f"an answer does not fit its output type {output_type}: {error}")
        raise OperatorFailure(operator.operator.name, told, ours=True) from error
    answers = pa.RecordBatch.from_arrays(arrays, schema=output_type.schema)
    stored = StoredCalls(
        list(edges),
        [bytes(write_stream(batch.schema, [batch])) for batch in batches],
        [number_of[call.origin.edge] for call in calls],
        [_UNANSWERED if call.answer is None else len(call.answer) for call in calls],
        bytes(write_stream(answers.schema, [answers])),
        str(output_type),
        queue.watermarks(),
    )
    return OperatorPart(operator.operator.uid, CALLS_PART, [msgspec.msgpack.encode(stored)])


def decode_calls(item: bytes) -> StoredCalls:
    return msgspec.msgpack.decode(item, type=StoredCalls)


def count_calls(part: OperatorPart) -> tuple[int, int]:
    """Return the number of calls in a part, and how many of them have an answer."""
    answers = [answer for item in part.items for answer in decode_calls(item).answers]
    return len(answers), sum(answer != _UNANSWERED for answer in answers)


def restored_calls(
    stored: StoredCalls, operator: AsyncOperator, schema_of: Callable[[str], pa.Schema], mask_of: Callable[[str], Mask]
) -> Iterator[RestoredCall]:
    """Yield the calls of an old subtask that belong to this one. `schema_of`: the columns that the rows of an edge have
    now. `mask_of`: which rows of an edge belong here. Raises `StateSchemaError`.
    """
    name = f"calls of operator '{operator.operator.name}'"
    batches = [_rows(data, schema_of(edge), name) for data, edge in zip(stored.rows, stored.edges)]
    kept = [mask_of(edge)(batch) for edge, batch in zip(stored.edges, batches)]
    origins = [CallBatch(batch, edge) for edge, batch in zip(stored.edges, batches)]
    times = [_times(batch) for batch in batches]
    answers = _answers(stored, row_type(operator.operator.output_type), name)
    next_row, next_answer = [0] * len(batches), 0
    for edge, count in zip(stored.edge_of, stored.answers):
        index = next_row[edge]
        next_row[edge] += 1
        answer = None
        if count != _UNANSWERED:
            answer = answers[next_answer : next_answer + count]
            next_answer += count
        if kept[edge][index]:
            yield RestoredCall(origins[edge], index, times[edge][index], answer)


def _rows(data: bytes, schema: pa.Schema, name: str) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        batch = reader.read_next_batch()
    missing = [f for f in schema if f.name not in batch.schema.names or batch.schema.field(f.name).type != f.type]
    if missing:
        raise StateSchemaError(
            f"{name}: rows that wait for an answer in the checkpoint have the columns "
            f"{_described(batch.schema)}, but the program's rows have {_described(schema)}: declare the type of the "
            "operator's input as before, until a checkpoint has completed without calls in flight"
        )
    return batch


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _times(batch: pa.RecordBatch) -> Sequence[int | None]:
    if TIMESTAMP_COLUMN not in batch.schema.names:
        return [None] * batch.num_rows
    times: list[int | None] = batch.column(TIMESTAMP_COLUMN).to_pylist()
    return times


def _answers(stored: StoredCalls, output_type: TypeInformation, name: str) -> list[Any]:
    with pa.ipc.open_stream(pa.py_buffer(stored.answer_rows)) as reader:
        batch = reader.read_next_batch()
    if stored.answer_type != str(output_type):
        told = changed_text(f"the output of {name}", str(output_type), stored.answer_type)
        batch = evolution_of(told, stored.answer_type, output_type).converted(batch)
    return decoded(output_type, batch, name)
