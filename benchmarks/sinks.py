"""Sinks that leave a trace of when they were written to. `time.monotonic_ns` is one clock for all processes of a
machine (Linux, macOS), so that a kill in the driver and a row in a slot can be compared."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext

COUNTER = struct.Struct("<qq")
"""(monotonic ns, rows so far)"""


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
    """In order of time. `kind`: "write" or "commit"."""
    found = []
    for path in trace.glob(f"{kind}-*.log"):
        for line in path.read_text(encoding="utf-8").splitlines():
            when, _, incarnation = line.partition(" ")
            if incarnation:
                found.append(Moment(int(when), incarnation))
    return sorted(found, key=lambda m: m.monotonic_ns)


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

    def commit(self, committables: list[bytes]) -> None:
        opened = [json.loads(c) for c in committables]
        self._inner.commit([bytes.fromhex(c["inner"]) for c in opened])
        for incarnation in sorted({c["incarnation"] for c in opened}):
            _append(self._trace / f"commit-{os.getpid()}.log", incarnation)


class CountingSink(Sink):
    """Counts rows in a shared page per writer, so that the driver can read the exact count at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _CountingWriter(Path(self.folder) / f"count-{context.subtask}-{os.getpid()}-{time.monotonic_ns()}.bin")


class _CountingWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        path.write_bytes(COUNTER.pack(time.monotonic_ns(), 0))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), COUNTER.size)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        COUNTER.pack_into(self._page, 0, time.monotonic_ns(), self._rows)

    def close(self) -> None:
        self._page.close()


def rows_counted(folder: Path) -> int:
    """Over all writers that there have been."""
    return sum(rows for _, rows in _counters(folder))


def _counters(folder: Path) -> Iterator[tuple[int, int]]:
    for path in folder.glob("count-*.bin"):
        data = path.read_bytes()
        if len(data) == COUNTER.size:
            yield COUNTER.unpack(data)
