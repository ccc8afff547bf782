"""Brings rows to the program that started the job.

Rows travel as committables: a writer gathers them until the barrier, and the committer, which lives in the driver's
process, hands them to the iterator of that sink when their checkpoint has completed. So every row comes exactly once,
however often the job restarts; a repeated commit is recognized by its writer's incarnation and number. Without
checkpointing all rows come at the end of the job.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from penstock.common.completable_future import CompletableFuture
from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import Committer, Sink, SinkError, SinkWriter, WriterContext

_CHUNK_BYTES = 4 << 20
_WRITER_BYTES_MAX = 256 << 20
_UNREAD_BYTES_MAX = 1 << 30


class CollectedFrom(Protocol):
    """Defines the iterator's interface to a job client."""

    def get_job_execution_result(self) -> CompletableFuture[Any]:
        """Return a future of the job's result."""

    def cancel(self) -> Any:
        """Cancel the job."""


class CollectSink(Sink):
    """Brings rows to the driver. `results(client)` iterates over them, once.

    `unread_bytes_max` limits what waits in the driver for a slow iterator, `writer_bytes_max` what a subtask gathers
    between two checkpoints. More fails the job.
    """

    def __init__(self, unread_bytes_max: int = _UNREAD_BYTES_MAX, writer_bytes_max: int = _WRITER_BYTES_MAX) -> None:
        self._id = uuid.uuid4().hex
        self._unread_bytes_max = unread_bytes_max
        self._writer_bytes_max = writer_bytes_max

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _CollectWriter(context, self._writer_bytes_max)

    def create_committer(self) -> Committer:
        return _CollectCommitter(_collected(self._id), self._unread_bytes_max)

    def results(self, client: CollectedFrom, timeout_ms: float | None = None) -> CloseableIterator:
        """Return an iterator over the rows of all completed checkpoints; it waits for more until the job ends.

        Args:
            client: The client of the job.
            timeout_ms: How long to wait for one row, in milliseconds. None: as long as the job runs.

        Returns:
            The iterator. Closing it before the job has ended cancels the job.
        """
        return CloseableIterator(_collected(self._id), client, timeout_ms)


class CloseableIterator(Iterator[Any]):
    """Iterates over a job's results. Closing it before the job has ended cancels the job.

    `next` raises `JobExecutionError` if the job has failed or was cancelled, after the rows that came before; and
    TimeoutError if no row came within `timeout_ms`.
    """

    def __init__(self, collected: _Collected, client: CollectedFrom, timeout_ms: float | None) -> None:
        self._collected = collected
        self._client = client
        self._timeout_ms = timeout_ms
        # A client of a job that this program drives ends the job on Ctrl-C, which an iterator waits through most often.
        self._waiting = getattr(client, "interruptible", _at_once)
        self._result = client.get_job_execution_result()
        self._result.add_done_callback(lambda _: collected.wake_up())
        self._rows: deque[Any] = deque()
        self._closed = False

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        if not self._rows:
            if self._closed:
                raise StopIteration
            chunk = self._waiting(lambda: self._collected.take(self._result.done, self._timeout_ms))
            if chunk is None:
                self._end()
                self._result.result(0)
                raise StopIteration
            self._rows.extend(pickle.loads(chunk))
        return self._rows.popleft()

    def close(self) -> None:
        """Discard the rows that were not read, and cancel the job unless it has ended."""
        if self._closed:
            return
        self._rows.clear()
        self._end()
        if not self._result.done():
            self._client.cancel()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _end(self) -> None:
        self._closed = True
        self._collected.close()


def _at_once(call: Callable[[], Any]) -> Any:
    return call()


class _Numbers:
    """Holds a set of numbers that are dense in the long run: all below a bound, and some beyond it."""

    def __init__(self) -> None:
        self._bound = 0
        self._beyond: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._bound or number in self._beyond

    def add(self, number: int) -> None:
        self._beyond.add(number)
        while self._bound in self._beyond:
            self._beyond.remove(self._bound)
            self._bound += 1


class _Collected:
    """Holds the rows of one sink that have been committed and not been read.

    The JobMaster's thread commits, and the program's thread reads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._unread_bytes = 0
        self._numbers: dict[tuple[str, int], _Numbers] = {}
        self._closed = False

    def add(self, writer: tuple[str, int], number: int, chunk: bytes, unread_bytes_max: int) -> None:
        with self._changed:
            numbers = self._numbers.setdefault(writer, _Numbers())
            if number in numbers:
                return
            if not self._closed:
                if self._unread_bytes + len(chunk) > unread_bytes_max:
                    raise SinkError(
                        f"{self._unread_bytes} bytes of collected results wait to be read, and {unread_bytes_max} are "
                        "allowed: read them faster, close the iterator, or write the stream to files (FileSink)"
                    )
                self._chunks.append(chunk)
                self._unread_bytes += len(chunk)
            numbers.add(number)
            self._changed.notify_all()

    def take(self, is_over: Any, timeout_ms: float | None) -> bytes | None:
        """Return the next chunk; None if there is none and `is_over()`. Raises TimeoutError."""
        deadline_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        with self._changed:
            while not self._chunks:
                if self._closed or is_over():
                    return None
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError(
                        f"no result within {timeout_ms:g} ms; results come with completed checkpoints, and without "
                        "checkpointing at the end of the job"
                    )
                self._changed.wait(left_s)
            chunk = self._chunks.popleft()
            self._unread_bytes -= len(chunk)
            return chunk

    def wake_up(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Discard all rows, and those that are committed from now on."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._unread_bytes = 0
            self._changed.notify_all()


_registry: dict[str, _Collected] = {}
_registry_lock = threading.Lock()


def _collected(sink_id: str) -> _Collected:
    """Return the rows of a sink by its id: the committer has a copy of the sink, and both find them here."""
    with _registry_lock:
        return _registry.setdefault(sink_id, _Collected())


class _CollectCommitter(Committer):
    def __init__(self, collected: _Collected, unread_bytes_max: int) -> None:
        self._collected = collected
        self._unread_bytes_max = unread_bytes_max

    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        for committable in committables:
            header, chunk = _split(committable)
            self._collected.add(
                (header["incarnation"], header["subtask"]), header["number"], chunk, self._unread_bytes_max
            )


class _CollectWriter(SinkWriter):
    def __init__(self, context: WriterContext, bytes_max: int) -> None:
        self._context = context
        self._row_type = context.input_type or PICKLED
        self._bytes_max = bytes_max
        self._rows: list[Any] = []
        self._rows_bytes = 0
        self._committables: list[bytes] = []
        self._committables_bytes = 0
        self._number = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += self._row_type.decode(batch)
        self._rows_bytes += batch.nbytes
        if self._rows_bytes >= _CHUNK_BYTES:
            self._close_chunk()
        if self._committables_bytes + self._rows_bytes > self._bytes_max:
            way_out = "take checkpoints more often" if self._context.checkpointing else "take checkpoints"
            raise SinkError(
                f"{self._context.operator_name}: more than {self._bytes_max} bytes of results were collected in a "
                f"subtask between two checkpoints; {way_out} (env.enable_checkpointing(1000)), or write the stream to "
                "files (FileSink)"
            )

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        self._close_chunk()
        committables, self._committables, self._committables_bytes = self._committables, [], 0
        return committables

    def _close_chunk(self) -> None:
        if not self._rows:
            return
        chunk = PICKLED.encode([self._rows])[0][0].as_py()
        header = {
            "incarnation": self._context.incarnation, "subtask": self._context.subtask, "number": self._number
        }  # fmt: skip
        self._committables.append(json.dumps(header).encode() + b"\n" + chunk)
        self._committables_bytes += len(chunk)
        self._number += 1
        self._rows, self._rows_bytes = [], 0


def _split(committable: bytes) -> tuple[dict[str, Any], bytes]:
    header, _, chunk = committable.partition(b"\n")
    return json.loads(header), chunk
