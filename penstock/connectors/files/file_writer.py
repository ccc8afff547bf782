"""Writes the parts of a file sink: open parts, parts that wait to be joined, and pending parts after a barrier."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import OutputGone, SinkWriter
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.file_committer import directory_at
from penstock.connectors.files.file_compaction import Compaction, FileCompactor, FileCompactStrategy
from penstock.connectors.files.file_formats import FileWriteFormat, PartWriter
from penstock.connectors.files.file_parts import OF_A_SAVEPOINT, FileCommittable, PartNames, naming
from penstock.connectors.files.part_directory import PartDirectory
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.files.waiting_rows import WaitingRows
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

_BUFFER_BYTES = 1 << 20
_BUFFERED_ROWS_BYTES_MAX = 128 << 20
_WAITING_ROWS_BYTES_MAX = 128 << 20
_PART_BYTES_ENOUGH = 16 << 20
"""A part of this size is not too small for a file."""

log = logging.getLogger(__name__)


@dataclass
class _OpenPart:
    number: int
    path: str
    file: BinaryIO
    rows: PartWriter
    began_s: float
    written_s: float
    durable_bytes: int | None = None
    """The length of the part at the last barrier, if it has outlived one: then a checkpoint may name it."""
    has_changed: bool = True
    """True if rows were written since the last barrier."""


@dataclass(frozen=True)
class _FinishedPart:
    """Describes a durable file that is not pending yet.

    `superseded` are hidden files whose rows are in this one. `other_suffix` is that of a part that a sink of another
    format or row type has begun; it is not joined with ours.
    """

    number: int
    bucket: str
    size: int
    is_named: bool = False
    superseded: tuple[str, ...] = ()
    other_suffix: str | None = None


@dataclass
class _Gathered:
    """Holds the parts of a bucket that wait to be joined, and how many checkpoints they have waited for."""

    parts: list[_FinishedPart]
    checkpoints: int = 0


@dataclass(frozen=True)
class _Joining:
    """Holds a compaction in progress. Its parts stay in the writer's state until it has ended."""

    number: int
    bucket: str
    parts: list[_FinishedPart]
    work: Compaction


class FileWriter(SinkWriter):
    """Writes the parts of one subtask of a file sink.

    `rolling` chooses when a part is finished. `compaction` is when finished parts are joined, and how; None: each
    becomes a file. `open_parts_max` limits the files that are open at a time. Beyond it parts that are appended to are
    closed and opened again; of other formats the rows wait in memory, and only when they are too many there is a part
    finished early.
    """

    def __init__(
        self,
        place: str,
        format: FileWriteFormat,
        names: PartNames,
        buckets: BucketAssigner,
        restored: list[bytes],
        rolling: RollingPolicy,
        open_parts_max: int,
        compaction: tuple[FileCompactStrategy, FileCompactor] | None = None,
        settings: StoreSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._place = place
        self._settings = settings
        self._format = format
        self._names = names
        self._buckets = buckets
        self._rolling = rolling
        self._open_parts_max = open_parts_max
        self._compaction = compaction
        self._written_type = buckets.written_type(names.context.input_type)
        self._columns = str((self._written_type or PICKLED).schema)
        self._open: dict[str, _OpenPart] = {}
        """The open part of each bucket, the one that was written longest ago first."""
        self._with_file: dict[str, None] = {}
        """Those of them whose files are open, in the same order."""
        self._waiting = WaitingRows()
        self._has_warned = False
        self._number = 0
        self._finished: list[_FinishedPart] = []
        self._gathered: dict[str, _Gathered] = {}
        self._joining: list[_Joining] = []
        self._compaction_turn = threading.Lock()
        self._is_ended = False
        self._stops = False
        states = [json.loads(state) for state in restored]
        self._awaiting: list[str] = [path for state in states for path in state["awaiting"]]
        parts = [(part, state) for state in states for part in state.get("parts", ())]
        predecessors = {(state["subtask"], state["parallelism"]) for state in states}
        kept = {os.path.basename(path) for path in self._awaiting} | {part["name"] for part, _ in parts}
        with naming(place, "written to"):
            self._directory = directory_at(place, settings, create=True)
            self._directory.prepare(names, predecessors, kept)
        self._naming = functools.partial(naming, way_out=self._directory.way_out)
        with self._naming(place, "written to"):
            for part, state in parts:
                self._continue_part(part["name"], part["bucket"], part["size"], state)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        for bucket, rows in self._buckets.assign(batch, self._names.context.input_type):
            self._write(bucket, rows)
        if len(self._open) > 1 and not self._format.is_appended:
            self._bound_buffers()

    def before_stop(self) -> None:
        """Finish all parts at the next barrier. Without this: hidden files of a stopped job stay in the directory."""
        self._stops = True

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        is_last = self._is_ended or self._stops or not self._names.context.checkpointing
        self._stops = False
        now_s, names_changed = time.monotonic(), False
        for bucket, part in list(self._open.items()):
            open_ms, idle_ms = (now_s - part.began_s) * 1000, (now_s - part.written_s) * 1000
            if is_last or not self._format.is_appended or self._rolling.rolls(open_ms, idle_ms):
                self._finish_part(bucket)
            else:
                names_changed = names_changed or part.durable_bytes is None
                self._keep_part(bucket, part)
        for bucket in self._waiting.buckets:
            self._write_waiting(bucket)
            if bucket in self._open:  # the last rows have not filled it
                self._finish_part(bucket)
        committables = [self._pending(finished, checkpoint_id) for finished in self._take_finished(is_last)]
        with self._naming(self._place, "synchronized"):
            for waiting in self._unjoined():
                self._directory.keep(self._names.in_progress(waiting.number), waiting.size)
            self._directory.settle(bool(committables or names_changed or self._gathered))
        self._awaiting += [part.pending_path for part in committables]
        return [part.encode() for part in committables]

    def snapshot(self) -> list[bytes]:
        self._awaiting = self._directory.still_pending(self._awaiting)
        context = self._names.context
        parts = [
            (os.path.basename(part.path), bucket, part.durable_bytes)
            for bucket, part in self._open.items()
            if part.durable_bytes is not None
        ]
        parts += [(self._names.in_progress(part.number), part.bucket, part.size) for part in self._unjoined()]
        state = {
            "subtask": context.subtask, "parallelism": context.parallelism, "awaiting": self._awaiting,
            "parts": [{"name": name, "bucket": bucket, "size": size} for name, bucket, size in parts],
            "directory": self._place, "suffix": self._names.suffix, "columns": self._columns,
        }  # fmt: skip
        return [json.dumps(state).encode()]

    def finish(self) -> None:
        """Finish all parts at the next barrier, and join those that wait."""
        self._is_ended = True

    def close(self) -> None:
        left = [self._names.in_progress(finished.number) for finished in self._finished if not finished.is_named]
        for part in self._open.values():
            part.rows.abandon()
            with contextlib.suppress(OSError):
                part.file.close()
            if part.durable_bytes is None:
                left.append(self._names.in_progress(part.number))
        for joining in self._joining:
            joining.work.abandon()
            left.append(self._names.in_progress(joining.number))
        self._open, self._with_file, self._finished, self._joining = {}, {}, [], []
        self._waiting = WaitingRows()
        self._directory.close(left)

    # ---- parts that outlive a checkpoint ------------------------------------------------------------------------

    def _keep_part(self, bucket: str, part: _OpenPart) -> None:
        """Make an open part durable as it is; rows that come later are written behind."""
        if not part.has_changed:
            return
        self._open_file(bucket, part)
        with self._naming(part.path, "written"):
            part.durable_bytes = self._directory.flush(part.file)
            self._directory.keep(self._names.in_progress(part.number), part.durable_bytes)
        part.has_changed = False

    def _continue_part(self, name: str, bucket: str, size: int, state: dict[str, Any]) -> None:
        """Take over a part of the checkpoint: its first `size` bytes, in a file of its own.

        `state`: the state of the writer that began it, perhaps in another directory, format or type.
        """
        old_place, suffix = state.get("directory", self._place), state.get("suffix", self._names.suffix)
        uid = self._names.context.operator_uid
        number, path = self._next_part()
        with open(path, "xb") as new:
            if not any(
                directory.read_part(name, bucket, size, uid, suffix, new) for directory in self._directories(old_place)
            ):
                raise OutputGone(
                    f"rows of a completed checkpoint are lost: {os.path.join(old_place, name)}, which holds them, does "
                    "not exist, and neither does the file that it has become. Was it removed, or taken away by a "
                    f"loader? Put it back, or start from a newer checkpoint. {OF_A_SAVEPOINT}"
                )
            self._directory.flush(new)
        superseded = (os.path.join(old_place, name),) if self._names.owns(name) else ()
        ours = {"suffix": self._names.suffix, "columns": self._columns}
        other_suffix = suffix if any(state.get(key, own) != own for key, own in ours.items()) else None
        self._finished.append(_FinishedPart(number, bucket, size, superseded=superseded, other_suffix=other_suffix))

    def _directories(self, old_place: str) -> Iterator[PartDirectory]:
        yield self._directory
        if old_place != self._place:
            yield directory_at(old_place, self._settings)

    def _pending(self, finished: _FinishedPart, checkpoint_id: int) -> FileCommittable:
        final_name = self._names.final(finished.number, checkpoint_id, finished.other_suffix)
        final = os.path.join(finished.bucket, final_name)
        name, pending = self._names.in_progress(finished.number), self._names.pending(finished.number)
        superseded = (*finished.superseded, name) if finished.is_named else finished.superseded
        part = FileCommittable(self._place, pending, final, finished.size, superseded)
        with self._naming(part.pending_path, "written"):
            self._directory.make_pending(name, pending, finished.is_named)
        return part

    # ---- compaction ---------------------------------------------------------------------------------------------

    def _take_finished(self, is_last: bool) -> list[_FinishedPart]:
        """Return the parts that become pending now."""
        if self._compaction is None:
            ready, self._finished = self._finished, []
            return ready
        strategy, compactor = self._compaction
        for gathered in self._gathered.values():
            gathered.checkpoints += 1
        ready = [part for part in self._finished if part.other_suffix is not None]
        for part in self._finished:
            if part.other_suffix is None:
                self._gathered.setdefault(part.bucket, _Gathered([])).parts.append(part)
        self._finished = []
        for bucket, gathered in list(self._gathered.items()):
            size = sum(part.size for part in gathered.parts)
            if is_last or strategy.is_due(size, gathered.checkpoints + 1):
                del self._gathered[bucket]
                if compactor.joins and len(gathered.parts) > 1:
                    self._join(bucket, gathered.parts, compactor)
                else:
                    # Checkpoints may name these parts, so their names in progress stay until the commit.
                    ready += [replace(part, is_named=True) for part in gathered.parts]
        done = [joining for joining in self._joining if is_last or joining.work.is_done]
        self._joining = [joining for joining in self._joining if joining not in done]
        return ready + [self._joined(joining) for joining in done]

    def _join(self, bucket: str, parts: list[_FinishedPart], compactor: FileCompactor) -> None:
        number, path = self._next_part()
        with self._naming(path, "written"):
            # The file is created here, not in the thread, which might create it after somebody has removed it.
            open(path, "xb").close()
        paths = [self._path(part.number) for part in parts]

        def work() -> int:
            with self._naming(path, "written"), open(path, "r+b", buffering=_BUFFER_BYTES) as file:
                compactor.compact(paths, file)
                file.flush()
                os.fsync(file.fileno())
                return os.fstat(file.fileno()).st_size

        self._joining.append(_Joining(number, bucket, parts, Compaction(work, self._compaction_turn)))

    def _joined(self, joining: _Joining) -> _FinishedPart:
        size = joining.work.result()
        joined = [self._names.in_progress(part.number) for part in joining.parts]
        self._directory.release(joined)
        superseded = [name for part in joining.parts for name in part.superseded]
        return _FinishedPart(joining.number, joining.bucket, size, superseded=(*superseded, *joined))

    def _unjoined(self) -> list[_FinishedPart]:
        """Return the parts that wait to be joined, or are being joined."""
        groups = [*(gathered.parts for gathered in self._gathered.values()), *(each.parts for each in self._joining)]
        return [part for group in groups for part in group]

    # ---- open parts ---------------------------------------------------------------------------------------------

    def _write(self, bucket: str, rows: pa.RecordBatch) -> None:
        has_place = len(self._open) < self._open_parts_max and bucket not in self._waiting
        if self._format.is_appended or bucket in self._open or has_place:
            self._write_to_part(bucket, rows)
            return
        waiting_bytes = self._waiting.add(bucket, rows)
        if self._rolling.part_size is not None and waiting_bytes >= self._rolling.part_size:
            self._write_waiting(bucket)
            if bucket in self._open:
                self._finish_part(bucket)
        while self._waiting.size_bytes > _WAITING_ROWS_BYTES_MAX:
            self._finish_early()
            self._write_waiting(self._waiting.largest)

    def _write_waiting(self, bucket: str) -> None:
        for rows in self._waiting.take(bucket):
            self._write_to_part(bucket, rows)

    def _write_to_part(self, bucket: str, rows: pa.RecordBatch) -> None:
        part = self._open.pop(bucket, None) or self._begin_part(bucket)
        self._open[bucket] = part
        self._open_file(bucket, part)
        with self._naming(part.path, "written"):
            part.rows.write(rows)
            part.written_s, part.has_changed = time.monotonic(), True
            part_size = self._rolling.part_size
            is_full = part_size is not None and part.rows.written_bytes >= part_size
        if is_full:
            self._finish_part(bucket)

    def _finish_early(self) -> None:
        """Make room for another part: finish the one that was written longest ago of those that are large enough."""
        if not self._open:
            return
        sizes = {bucket: part.rows.written_bytes for bucket, part in self._open.items()}
        enough = next((bucket for bucket, size in sizes.items() if size >= _PART_BYTES_ENOUGH), None)
        finished = max(sizes, key=lambda bucket: sizes[bucket]) if enough is None else enough
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "'%s' writes to more buckets in turn than files may be open (%d), and the rows of the others have "
                "filled %d MB of memory: parts are finished early, this one with %d bytes. For fewer and larger "
                "files key the stream by the bucket's column before the sink, or raise open_buckets_max.",
                self._names.context.operator_name, self._open_parts_max, _WAITING_ROWS_BYTES_MAX >> 20, sizes[finished],
            )  # fmt: skip
        self._finish_part(finished)

    def _open_file(self, bucket: str, part: _OpenPart) -> None:
        """Open the file of a part again, if it was closed so that others could be open."""
        self._with_file.pop(bucket, None)
        while self._format.is_appended and len(self._with_file) >= self._open_parts_max:
            self._close_file(next(iter(self._with_file)))
        if part.file.closed:
            with self._naming(part.path, "written"):
                part.file = open(part.path, "ab", buffering=_BUFFER_BYTES)  # noqa: SIM115
                part.rows = self._format.start(part.file, self._written_type)
        self._with_file[bucket] = None

    def _close_file(self, bucket: str) -> None:
        part = self._open[bucket]
        with self._naming(part.path, "written"):
            part.file.close()
        del self._with_file[bucket]

    def _begin_part(self, bucket: str) -> _OpenPart:
        self._directory.check_bucket(bucket)
        number, path = self._next_part()
        with self._naming(path, "written"):
            file = open(path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
            now_s = time.monotonic()
            try:
                return _OpenPart(number, path, file, self._format.start(file, self._written_type), now_s, now_s)
            except BaseException:
                file.close()
                raise

    def _finish_part(self, bucket: str) -> None:
        part = self._open[bucket]
        self._open_file(bucket, part)
        with self._naming(part.path, "written"):
            part.rows.finish()
            size = self._directory.flush(part.file)
            part.file.close()
            if self._compaction is None:
                self._directory.send_ahead(self._names.in_progress(part.number), self._names.pending(part.number))
        self._finished.append(_FinishedPart(part.number, bucket, size, is_named=part.durable_bytes is not None))
        del self._open[bucket], self._with_file[bucket]

    def _bound_buffers(self) -> None:
        """Write the rows of the part that holds most of them, if open parts hold more in memory than they may."""
        buffered = sum(part.rows.buffered_bytes for part in self._open.values())
        if buffered > _BUFFERED_ROWS_BYTES_MAX:
            part = max(self._open.values(), key=lambda each: each.rows.buffered_bytes)
            with self._naming(part.path, "written"):
                part.rows.write_buffered()

    def _next_part(self) -> tuple[int, str]:
        number = self._number
        self._number += 1
        return number, self._path(number)

    def _path(self, number: int) -> str:
        return self._directory.path(self._names.in_progress(number))
