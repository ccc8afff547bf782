"""Writes rows into files, exactly once.

The directory is one of a file system (`local_parts`) or of a store (`stored_parts`).

Rows go into part files of the writer, one per bucket. At a barrier the parts are made durable. Those that the rolling
policy finishes become pending, and are renamed to their final names when the checkpoint has completed (see
`file_parts`); the others are in the writer's state, with their length. With compaction finished parts wait to be
joined. Without checkpointing all this happens once, at the end of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.serialization import Encoder
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.file_committer import FileCommitter, directory_at
from penstock.connectors.files.file_compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.files.file_formats import FileWriteFormat, PartWriter
from penstock.connectors.files.file_listing import place_of
from penstock.connectors.files.file_parts import PartNames, naming
from penstock.connectors.files.file_writer import FileWriter
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.formats.parquet.parquet import ParquetBulkWriters
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

_OPEN_BUCKETS_MAX = 64


@dataclass(frozen=True)
class OutputFileConfig:
    """Holds the prefix and the suffix of part files' names."""

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
        """Return a builder."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return the prefix of the names."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix of the names."""
        return self.part_suffix


class OutputFileConfigBuilder:
    """Builds an `OutputFileConfig`."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set the prefix of part files' names. The default is "part".

        Args:
            prefix: The text. It must not begin with "." or "_", which readers take for hidden files.
        """
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set the suffix of part files' names, such as ".txt".

        Args:
            suffix: The text.
        """
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Return the config. Raises ValueError if a text cannot be part of a name."""
        return OutputFileConfig(self._prefix, self._suffix)


class FileSink(Sink):
    """Writes rows to files in `base_path`, or in buckets below it; with checkpoints each row exactly once.

    A file becomes visible when it is finished and the next checkpoint has completed; without checkpoints at the end of
    the job. A rolling policy chooses when files of row formats are finished; bulk formats finish theirs at every
    checkpoint.

    Example:
        FileSink.for_row_format(path, Encoder.simple_string_encoder()).build()
        FileSink.for_bulk_format(path, JsonLinesBulkWriters.for_row_type()).build()
        FileSink.for_parquet(path)
    """

    def __init__(
        self,
        base_path: str,
        format: FileWriteFormat,
        rolling: RollingPolicy,
        names: OutputFileConfig,
        buckets: BucketAssigner,
        open_buckets_max: int,
        compaction: tuple[FileCompactStrategy, FileCompactor] | None = None,
    ) -> None:
        self._compaction = compaction
        self._directory = place_of(base_path)
        self._settings = DEFAULT_SETTINGS
        self._format = format
        self._rolling = rolling
        self._names = names
        self._buckets = buckets
        self._open_buckets_max = open_buckets_max

    def configure(self, configuration: Configuration) -> None:
        self._settings = StoreSettings.of(configuration)

    def describe(self) -> dict[str, str]:
        """Return the directory and the format."""
        return {"connector": "files", "directory": self._directory, "format": type(self._format).__name__}

    @staticmethod
    def for_parquet(base_path: str, compression: str = "snappy") -> FileSink:
        """Make a sink of Parquet files with a column for each field of the stream's type.

        Args:
            base_path: The directory: a path or file:// URI that all slots see, or a URI of a store, as s3://bucket/folder.
            compression: "snappy", "zstd", "gzip", "lz4" or "none".

        Returns:
            The sink.
        """
        return FileSink.for_bulk_format(base_path, ParquetBulkWriters.for_row_type(compression=compression)).build()

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSinkBuilder:
        """Make a builder of a sink that writes one row after the other. By default files roll by size and time.

        Args:
            base_path: The directory: a path or file:// URI that all slots see, or a URI of a store, as s3://bucket/folder.
            encoder: Turns a row into bytes.

        Returns:
            The builder.
        """
        return FileSinkBuilder(base_path, RowWriteFormat(encoder), RollingPolicy.default_rolling_policy())

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: FileWriteFormat) -> FileSinkBuilder:
        """Make a builder of a sink that writes rows in columns.

        Files end at every checkpoint; `enable_compact` joins them.

        Args:
            base_path: The directory: a path or file:// URI that all slots see, or a URI of a store, as s3://bucket/folder.
            writer_factory: Made by `ParquetBulkWriters`, `JsonLinesBulkWriters` or `CsvBulkWriters`.

        Returns:
            The builder.
        """
        return FileSinkBuilder(base_path, writer_factory, RollingPolicy.on_checkpoint_rolling_policy())

    def validate(self, input_type: TypeInformation | None) -> None:
        self._format.validate(input_type)
        self._buckets.written_type(input_type)
        with naming(self._directory, "written to"):
            directory_at(self._directory, self._settings, create=True).probe()

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return FileWriter(
            self._directory,
            self._format,
            PartNames(context, self._names.part_prefix, self._names.part_suffix),
            self._buckets,
            restored,
            rolling=self._rolling,
            open_parts_max=self._open_buckets_max,
            compaction=self._compaction,
            settings=self._settings,
        )

    def create_committer(self) -> Committer:
        return FileCommitter(self._settings)


class FileSinkBuilder:
    """Builds a `FileSink`, as PyFlink's `RowFormatBuilder` and `BulkFormatBuilder` do. `build()` ends."""

    def __init__(self, base_path: str, format: FileWriteFormat, rolling: RollingPolicy) -> None:
        self._base_path = base_path
        self._format = format
        self._rolling = rolling
        self._names = OutputFileConfig(part_suffix=format.default_suffix)
        self._buckets = BucketAssigner.base_path_bucket_assigner()
        self._open_buckets_max = _OPEN_BUCKETS_MAX
        self._compaction: tuple[FileCompactStrategy, FileCompactor] | None = None

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> FileSinkBuilder:
        """Join small files before they become visible.

        Args:
            strategy: When files are joined: `FileCompactStrategy.builder()`.
            compactor: How: `FileCompactor.concat_file_compactor()` or `FileCompactor.parquet_file_compactor()`.

        Raises:
            TypeError: An argument is of another class.
            ValueError: Files of this format cannot be joined in this way.
        """
        if not isinstance(strategy, FileCompactStrategy):
            raise TypeError(f"enable_compact() takes a FileCompactStrategy (builder().build()), got {strategy!r}")
        if not isinstance(compactor, FileCompactor):
            raise TypeError(f"enable_compact() takes a FileCompactor, got {compactor!r}")
        compactor.check(self._format)
        self._compaction = strategy, compactor
        return self

    def disable_compact(self) -> FileSinkBuilder:
        """Make a file of every part, the default."""
        self._compaction = None
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """Set the policy that finishes a file and begins another one.

        Args:
            rolling_policy: The policy.
        """
        self._rolling = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Set the prefix and the suffix of files' names.

        Args:
            output_file_config: The names.
        """
        self._names = output_file_config
        return self

    def with_bucket_assigner(
        self, bucket_assigner: BucketAssigner, open_buckets_max: int = _OPEN_BUCKETS_MAX
    ) -> FileSinkBuilder:
        """Set the assigner of rows to directories.

        Args:
            bucket_assigner: The assigner.
            open_buckets_max: The largest number of files that a subtask has open at a time. With more buckets, parts
                of row formats are closed and opened again, and rows of bulk formats wait in memory, up to 128 MB. With
                so many buckets that this is not enough, files get small, which is said in the log of the slot: key
                the stream by the bucket's column before the sink, then each subtask has few.

        Raises:
            TypeError: The argument is no assigner.
            ValueError: `open_buckets_max` is less than 1.
        """
        if not isinstance(bucket_assigner, BucketAssigner):
            raise TypeError(
                f"a BucketAssigner is needed (BucketAssigner.column_bucket_assigner(...)), not {bucket_assigner!r}"
            )
        if open_buckets_max < 1:
            raise ValueError(f"open_buckets_max must be at least 1, not {open_buckets_max}")
        self._buckets = bucket_assigner
        self._open_buckets_max = open_buckets_max
        return self

    def build(self) -> FileSink:
        """Return the sink."""
        return FileSink(
            self._base_path,
            self._format,
            self._rolling,
            self._names,
            self._buckets,
            self._open_buckets_max,
            self._compaction,
        )


class RowWriteFormat(FileWriteFormat):
    """Writes one row after the other, as an encoder encodes it."""

    is_appended = True

    def __init__(self, encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise TypeError(f"an Encoder is needed (Encoder.simple_string_encoder()), not a {type(encoder).__name__}")
        self._encoder = encoder

    def validate(self, input_type: TypeInformation | None) -> None:
        """Accept rows of every type.

        Args:
            input_type: The type of the rows, or None.
        """

    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        return _RowPart(file, self._encoder, input_type or PICKLED)


class _RowPart(PartWriter):
    def __init__(self, file: BinaryIO, encoder: Encoder, row_type: TypeInformation) -> None:
        super().__init__(file)
        self._encode = encoder.for_type(row_type).encode
        self._row_type = row_type

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(b"".join(map(self._encode, self._row_type.decode(batch))))
