"""The writer of a file sink: the parts that are open, one per bucket, and those that wait for a barrier."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from penstock.datastream.connectors.base import SinkError, SinkWriter
from penstock.datastream.connectors.buckets import BucketAssigner
from penstock.datastream.connectors.file_formats import FileWriteFormat, PartWriter
from penstock.datastream.connectors.file_parts import (
    FileCommittable,
    PartNames,
    naming,
    remove_leftovers,
    synchronize_directory,
)

_BUFFER_BYTES = 1 << 20
_BUFFERED_ROWS_BYTES_MAX = 128 << 20
_NAME_BYTES_MAX = 255


@dataclass
class _OpenPart:
    number: int
    path: str
    file: BinaryIO
    rows: PartWriter


@dataclass(frozen=True)
class _FinishedPart:
    """Durable, and not pending yet."""

    number: int
    bucket: str
    size: int


class FileWriter(SinkWriter):
    """
    :param part_size_max: the size in bytes at which a part is finished; None: at checkpoints alone.
    :param open_parts_max: how many buckets have an open part.
    """

    def __init__(
        self,
        directory: str,
        format: FileWriteFormat,
        names: PartNames,
        buckets: BucketAssigner,
        restored: list[bytes],
        part_size_max: int | None,
        open_parts_max: int,
    ) -> None:
        self._directory = directory
        self._format = format
        self._names = names
        self._buckets = buckets
        self._part_size_max = part_size_max
        self._open_parts_max = open_parts_max
        self._written_type = buckets.written_type(names.context.input_type)
        self._open: dict[str, _OpenPart] = {}
        """By bucket, the one that was written longest ago first."""
        self._number = 0
        self._finished: list[_FinishedPart] = []
        states = [json.loads(state) for state in restored]
        self._awaiting: list[str] = [path for state in states for path in state["awaiting"]]
        predecessors = {(state["subtask"], state["parallelism"]) for state in states}
        with naming(directory, "written to"):
            os.makedirs(directory, exist_ok=True)
            remove_leftovers(directory, names, predecessors, self._awaiting)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        for bucket, rows in self._buckets.assign(batch, self._names.context.input_type):
            self._write(bucket, rows)
        if len(self._open) > 1:
            self._bound_buffers()

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        for bucket in list(self._open):
            self._finish_part(bucket)
        committables = []
        for finished in self._finished:
            final = os.path.join(finished.bucket, self._names.final(finished.number, checkpoint_id))
            part = FileCommittable(self._directory, self._names.pending(finished.number), final, finished.size)
            with naming(part.pending_path, "written"):
                os.rename(self._path(finished.number), part.pending_path)
            committables.append(part)
        if committables:
            with naming(self._directory, "synchronized"):
                synchronize_directory(self._directory)
        self._finished = []
        self._awaiting += [part.pending_path for part in committables]
        return [part.encode() for part in committables]

    def snapshot(self) -> list[bytes]:
        self._awaiting = [path for path in self._awaiting if os.path.exists(path)]
        context = self._names.context
        state = {"subtask": context.subtask, "parallelism": context.parallelism, "awaiting": self._awaiting}
        return [json.dumps(state).encode()]

    def close(self) -> None:
        left = [self._path(finished.number) for finished in self._finished]
        for part in self._open.values():
            part.rows.abandon()
            with contextlib.suppress(OSError):
                part.file.close()
            left.append(part.path)
        self._open, self._finished = {}, []
        for path in left:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _write(self, bucket: str, rows: pa.RecordBatch) -> None:
        part = self._open.pop(bucket, None)
        if part is None:
            if len(self._open) >= self._open_parts_max:
                self._finish_part(next(iter(self._open)))
            part = self._begin_part(bucket)
        self._open[bucket] = part
        with naming(part.path, "written"):
            part.rows.write(rows)
            is_full = self._part_size_max is not None and part.rows.written_bytes >= self._part_size_max
        if is_full:
            self._finish_part(bucket)

    def _begin_part(self, bucket: str) -> _OpenPart:
        for name in bucket.split("/"):
            # Its directory is made by the commit, when it would be too late to refuse it.
            if len(os.fsencode(name)) > _NAME_BYTES_MAX:
                raise SinkError(
                    f"{name[:100]}... is no name of a directory in {self._directory}: it has {len(os.fsencode(name))} "
                    f"bytes, and {_NAME_BYTES_MAX} is the most. Make buckets of a column with shorter values."
                )
        number, path = self._number, self._path(self._number)
        with naming(path, "written"):
            file = open(path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
            self._number += 1
            try:
                return _OpenPart(number, path, file, self._format.start(file, self._written_type))
            except BaseException:
                file.close()
                raise

    def _finish_part(self, bucket: str) -> None:
        part = self._open[bucket]
        with naming(part.path, "written"):
            part.rows.finish()
            part.file.flush()
            os.fsync(part.file.fileno())
            size = os.fstat(part.file.fileno()).st_size
            part.file.close()
        self._finished.append(_FinishedPart(part.number, bucket, size))
        del self._open[bucket]

    def _bound_buffers(self) -> None:
        """Formats that gather rows do so for one open part at a time; many together would fill the memory."""
        buffered = sum(part.rows.buffered_bytes for part in self._open.values())
        if buffered > _BUFFERED_ROWS_BYTES_MAX:
            part = max(self._open.values(), key=lambda each: each.rows.buffered_bytes)
            with naming(part.path, "written"):
                part.rows.write_buffered()

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, self._names.in_progress(number))
