"""Rows into files, exactly once.

Rows go into a part file of the writer. At a barrier the part is finished, made durable and becomes pending; it is
renamed to its final name when the checkpoint has completed (see `file_parts`). Without checkpointing this happens
once, at the end of the job.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from penstock.common.scalar_types import PICKLED
from penstock.common.serialization import Encoder
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.file_formats import FileWriteFormat, PartWriter
from penstock.datastream.connectors.file_listing import local_path
from penstock.datastream.connectors.file_parts import (
    FileCommittable,
    FileCommitter,
    PartNames,
    naming,
    remove_leftovers,
    synchronize_directory,
)
from penstock.datastream.connectors.parquet import ParquetBulkWriters

_BUFFER_BYTES = 1 << 20
_PART_BYTES_DEFAULT = 128 << 20


@dataclass(frozen=True)
class OutputFileConfig:
    """What the names of part files begin and end with."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def __post_init__(self) -> None:
        if not self.part_prefix or self.part_prefix.startswith((".", "_")):
            raise ValueError(
                f"part prefix {self.part_prefix!r}: readers take a name that begins with '.' or '_' for a hidden file"
            )
        for text in (self.part_prefix, self.part_suffix):
            if "/" in text:
                raise ValueError(f"part prefix or suffix {text!r} must not contain '/'")

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix


class OutputFileConfigBuilder:
    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._prefix, self._suffix)


@dataclass(frozen=True)
class RollingPolicy:
    """When a part is finished and another one begun: at every checkpoint, and at `part_size` bytes (None: only at
    checkpoints). Because no part outlives a checkpoint, a job with rare checkpoints makes few and large files."""

    part_size: int | None = None

    def __post_init__(self) -> None:
        if self.part_size is not None and self.part_size <= 0:
            raise ValueError(f"part_size must be greater than 0 bytes, not {self.part_size}")

    @staticmethod
    def default_rolling_policy(
        part_size: int = _PART_BYTES_DEFAULT, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> RollingPolicy:
        """The intervals (ms) are Flink's, for parts that outlive checkpoints. Ours do not, and a finished part is
        visible no earlier than its checkpoint: they change nothing."""
        return RollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        return RollingPolicy()


class FileSink(Sink):
    """Writes rows to files directly in `base_path` (no buckets), each row exactly once where checkpoints are taken.

    `FileSink.for_row_format(path, Encoder.simple_string_encoder()).build()`,
    `FileSink.for_bulk_format(path, ParquetBulkWriters.for_row_type(row_type)).build()`, or
    `FileSink.for_parquet(path)` for short.
    """

    def __init__(
        self, base_path: str, format: FileWriteFormat, rolling: RollingPolicy, names: OutputFileConfig
    ) -> None:
        self._directory = os.path.abspath(local_path(base_path))
        self._format = format
        self._rolling = rolling
        self._names = names

    @staticmethod
    def for_parquet(base_path: str, compression: str = "snappy") -> FileSink:
        """Parquet with a column per field of the stream's type. Compression: snappy, zstd, gzip, lz4 or none."""
        return FileSink.for_bulk_format(base_path, ParquetBulkWriters.for_row_type(compression=compression)).build()

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSinkBuilder:
        """One row after the other, as the encoder writes it."""
        return FileSinkBuilder(base_path, RowWriteFormat(encoder), RollingPolicy.default_rolling_policy())

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: FileWriteFormat) -> FileSinkBuilder:
        return FileSinkBuilder(base_path, writer_factory, RollingPolicy.on_checkpoint_rolling_policy())

    def validate(self, input_type: TypeInformation | None) -> None:
        self._format.validate(input_type)
        probe = os.path.join(self._directory, f".penstock-probe-{os.getpid()}")
        with naming(self._directory, "written to"):
            os.makedirs(self._directory, exist_ok=True)
            with open(probe, "wb"):
                pass
            os.unlink(probe)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        names = PartNames(context, self._names.part_prefix, self._names.part_suffix)
        return _FileWriter(self._directory, self._format, self._rolling, names, restored)

    def create_committer(self) -> Committer:
        return FileCommitter()


class FileSinkBuilder:
    """PyFlink's `RowFormatBuilder` and `BulkFormatBuilder` in one."""

    def __init__(self, base_path: str, format: FileWriteFormat, rolling: RollingPolicy) -> None:
        self._base_path = base_path
        self._format = format
        self._rolling = rolling
        self._names = OutputFileConfig(part_suffix=format.default_suffix)

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        self._rolling = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        self._names = output_file_config
        return self

    def build(self) -> FileSink:
        return FileSink(self._base_path, self._format, self._rolling, self._names)


class RowWriteFormat(FileWriteFormat):
    """One row after the other, as an encoder writes it."""

    def __init__(self, encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise TypeError(f"an Encoder is needed (Encoder.simple_string_encoder()), not a {type(encoder).__name__}")
        self._encoder = encoder

    def validate(self, input_type: TypeInformation | None) -> None:
        """Rows of every type can be written."""

    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        return _RowPart(file, self._encoder, input_type or PICKLED)


class _RowPart(PartWriter):
    def __init__(self, file: BinaryIO, encoder: Encoder, row_type: TypeInformation) -> None:
        self._file = file
        self._encode = encoder.encode
        self._row_type = row_type

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(b"".join(map(self._encode, self._row_type.decode(batch))))

    @property
    def written_bytes(self) -> int:
        return self._file.tell()

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _FileWriter(SinkWriter):
    def __init__(
        self,
        directory: str,
        format: FileWriteFormat,
        rolling: RollingPolicy,
        names: PartNames,
        restored: list[bytes],
    ) -> None:
        self._directory = directory
        self._format = format
        self._rolling = rolling
        self._names = names
        self._file: BinaryIO | None = None
        self._part: PartWriter | None = None
        self._number = 0
        self._finished: list[tuple[int, int]] = []
        """(number, size in bytes) of parts that are durable, and not pending yet."""
        states = [json.loads(state) for state in restored]
        self._awaiting: list[str] = [path for state in states for path in state["awaiting"]]
        predecessors = {(state["subtask"], state["parallelism"]) for state in states}
        with naming(directory, "written to"):
            os.makedirs(directory, exist_ok=True)
            remove_leftovers(directory, names, predecessors, self._awaiting)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        with naming(self._path_in_progress, "written"):
            if self._part is None:
                self._file = open(self._path_in_progress, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
                self._part = self._format.start(self._file, self._names.context.input_type)
            self._part.write(batch)
            if self._rolling.part_size is not None and self._part.written_bytes >= self._rolling.part_size:
                self._finish_part()

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        with naming(self._path_in_progress, "written"):
            self._finish_part()
        committables = []
        for number, size in self._finished:
            part = FileCommittable(
                self._directory, self._names.pending(number), self._names.final(number, checkpoint_id), size
            )
            with naming(part.pending_path, "written"):
                os.rename(os.path.join(self._directory, self._names.in_progress(number)), part.pending_path)
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
        if self._part is not None:
            self._part.abandon()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._finished.append((self._number, 0))
            self._file = self._part = None
        for number, _ in self._finished:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._directory, self._names.in_progress(number)))
        self._finished = []

    @property
    def _path_in_progress(self) -> str:
        return os.path.join(self._directory, self._names.in_progress(self._number))

    def _finish_part(self) -> None:
        if self._part is None or self._file is None:
            return
        self._part.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        self._finished.append((self._number, size))
        self._file = self._part = None
        self._number += 1
