"""Sinks that leave a trace of when they were written to. `time.monotonic_ns` is one clock for all processes of a
machine (Linux, macOS), so that a kill in the driver and a row in a slot can be compared."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from measuring import POLL_S
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext

COUNTER = struct.Struct("<qq")
"""(rows so far, sum of a column so far)"""
_RECORDED_BUFFER_BYTES = 1 << 20

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moment:
    """Something happened in the writer of one generation, which `incarnation` names."""

    monotonic_ns: int
    incarnation: str


class TracedSink(Sink):
    """Wraps a sink: each write of rows appends a line to a file of its writer below `trace`, and so does each commit
    of what a writer of that incarnation wrote."""

    def __init__(self, inner: Sink, trace: Path) -> None:
        self.inner = inner
        self.trace = str(trace)

    def validate(self, input_type: TypeInformation | None) -> None:
        self.inner.validate(input_type)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _TracedWriter(self.inner.create_writer(context, restored), context, Path(self.trace))

    def create_committer(self) -> Committer | None:
        inner = self.inner.create_committer()
        return None if inner is None else _TracedCommitter(inner, Path(self.trace))


def _append(path: Path, incarnation: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{time.monotonic_ns()} {incarnation}\n")


def moments(trace: Path, kind: str) -> list[Moment]:
    """Return the moments in order of time. `kind`: "write" or "commit"."""
    found = []
    for path in trace.glob(f"{kind}-*.log"):
        for line in path.read_text(encoding="utf-8").splitlines():
            when, _, incarnation = line.partition(" ")
            if incarnation:
                found.append(Moment(int(when), incarnation))
    return sorted(found, key=lambda m: m.monotonic_ns)


def first_after(kind: str, trace: Path, known: set[str], limit_s: float) -> Moment | None:
    """The first moment of a generation that is not among the known ones; None: not within the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        fresh = [m for m in moments(trace, kind) if m.incarnation not in known]
        if fresh:
            return fresh[0]
        time.sleep(POLL_S)
    return None


class _TracedWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, context: WriterContext, trace: Path) -> None:
        self._inner = inner
        self._incarnation = context.incarnation
        self._log = trace / f"write-{context.subtask}-{os.getpid()}.log"

    def write(self, batch: pa.RecordBatch) -> None:
        self._inner.write(batch)
        _append(self._log, self._incarnation)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        inner = self._inner.prepare_commit(checkpoint_id)
        return [json.dumps({"incarnation": self._incarnation, "inner": c.hex()}).encode() for c in inner]

    def snapshot(self) -> list[bytes]:
        return self._inner.snapshot()

    def finish(self) -> None:
        self._inner.finish()

    def close(self) -> None:
        self._inner.close()


class _TracedCommitter(Committer):
    def __init__(self, inner: Committer, trace: Path) -> None:
        self._inner = inner
        self._trace = trace

    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        opened = [json.loads(c) for c in committables]
        self._inner.commit(checkpoint_id, [bytes.fromhex(c["inner"]) for c in opened])
        for incarnation in sorted({c["incarnation"] for c in opened}):
            _append(self._trace / f"commit-{os.getpid()}.log", incarnation)


class CountingSink(Sink):
    """Discards rows, but counts them in a shared page per writer, so that the driver can read the exact count at any
    moment. With `column`, a column of whole numbers, adds that up, too."""

    def __init__(self, folder: Path, column: str | int | None = None) -> None:
        self.folder = str(folder)
        self.column = column

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        name = f"count-{context.subtask}-{os.getpid()}-{time.monotonic_ns()}.bin"
        return _CountingWriter(Path(self.folder) / name, self.column)


class _CountingWriter(SinkWriter):
    def __init__(self, path: Path, column: str | int | None) -> None:
        path.write_bytes(COUNTER.pack(0, 0))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), COUNTER.size)
        self._column = column
        self._rows = self._sum = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._column is not None:
            self._sum += int(batch.column(self._column).to_numpy().sum())
        COUNTER.pack_into(self._page, 0, self._rows, self._sum)

    def close(self) -> None:
        self._page.close()


@dataclass(frozen=True)
class Counted:
    """Over all writers that there have been."""

    rows: int
    sum: int


def counted(folder: Path) -> Counted:
    pages = [path.read_bytes() for path in folder.glob("count-*.bin")]
    found = [COUNTER.unpack(page) for page in pages if len(page) == COUNTER.size]
    return Counted(sum(rows for rows, _ in found), sum(total for _, total in found))


class RecordingSink(Sink):
    """Discards rows, but appends what `record` says of each batch, whole numbers, to a file of its writer. The file is
    complete when the job has ended."""

    def __init__(self, folder: Path, record: Callable[[pa.RecordBatch], Any]) -> None:
        self.folder = str(folder)
        self.record = record

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        name = f"record-{context.subtask}-{os.getpid()}-{time.monotonic_ns()}.bin"
        return _RecordingWriter(Path(self.folder) / name, self.record)


class _RecordingWriter(SinkWriter):
    def __init__(self, path: Path, record: Callable[[pa.RecordBatch], Any]) -> None:
        self._file = path.open("wb", buffering=_RECORDED_BUFFER_BYTES)
        self._record = record

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(np.ascontiguousarray(self._record(batch), dtype=np.int64).tobytes())

    def close(self) -> None:
        self._file.close()


def recorded(folder: Path) -> list[Longs]:
    """One array per writer."""
    return [np.fromfile(path, dtype=np.int64) for path in sorted(folder.glob("record-*.bin"))]
