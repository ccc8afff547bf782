"""Reads and writes files of Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import BinaryIO, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.row_types.arrow_types import UnsupportedColumn, conform, row_type_of
from penstock.common.row_types.composite_types import RowType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import MalformedRecord, SinkError, SourceError
from penstock.connectors.files.file_formats import (
    FileReadFormat,
    FileShape,
    FileWriteFormat,
    OpenFile,
    PartWriter,
    Portion,
    Position,
    Record,
    raise_on_difference,
    shown_row,
)
from penstock.connectors.files.input_file import InputFile, fault_of
from penstock.connectors.files.malformed_rows import MalformedRows
from penstock.connectors.formats.parquet.parquet_timestamps import LossyTimestamps, int96_columns, to_microseconds

# A batch costs a tenth of a millisecond in each operator, however small; rows without a fixed size may be large.
_ROWS_READ_AHEAD = 8192
_ROWS_READ_AHEAD_MAX = 65_536
_BYTES_READ_AHEAD = 4 << 20
_ROW_GROUP_BYTES = 32 << 20
_PENDING_BATCHES_MAX = 256


class ParquetColumnarRowInputFormat(FileReadFormat):
    """Reads Parquet files in columns.

    `row_type` declares the columns to read and their types, as named rows; None: those of the first file. Other columns
    of a file are not read. `columns` only names the columns to read; their types are those of the first file.
    `malformed_rows`: what becomes of rows whose event time cannot be read (`MalformedRows.fail()`, the default,
    `.skip()` or `.side_output(tag)`, where `line` is the number of the row in its row group). `lossy_timestamps`: what
    becomes of timestamps with digits behind the microsecond.
    """

    def __init__(
        self,
        row_type: TypeInformation | None = None,
        *,
        columns: Sequence[str] | None = None,
        malformed_rows: MalformedRows | None = None,
        lossy_timestamps: LossyTimestamps = LossyTimestamps.REFUSE,
    ) -> None:
        if row_type is not None and columns is not None:
            raise ValueError("give row_type or columns, not both")
        self.malformed_rows = malformed_rows or MalformedRows.fail()
        self._lossy = LossyTimestamps(lossy_timestamps)
        self._declared = row_type
        self._columns = list(row_type.schema.names) if row_type is not None else columns and list(columns)

    def inspect(self, file: InputFile) -> FileShape:
        opened = _opened(file)
        try:
            found = self._row_type(file.path, opened)
            if self._declared is not None:
                raise_on_difference(file.path, found, self._declared, "the declared row type")
            return FileShape(self._declared or found, tuple(range(opened.metadata.num_row_groups + 1)))
        finally:
            opened.close(force=True)

    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        opened = _opened(file)
        raw = None
        try:
            raise_on_difference(file.path, self._row_type(file.path, opened), row_type)
            int96 = sorted(int96_columns(opened).intersection(row_type.schema.names))
            if int96 and self._lossy is not LossyTimestamps.COERCE:
                raw = _RawInt96(_opened(file, int96_unit="ns"), int96)
        except SourceError:
            opened.close(force=True)
            raise
        return _OpenParquet(file.path, opened, row_type.schema, self._lossy, raw)

    def _row_type(self, path: str, file: pq.ParquetFile) -> RowType:
        schema = file.schema_arrow
        if self._columns:
            for name in self._columns:
                if name not in schema.names:
                    raise MalformedRecord(f"{path} has no column {name!r}; it has {', '.join(schema.names)}")
            schema = pa.schema([schema.field(name) for name in self._columns])
        try:
            return row_type_of(schema)
        except UnsupportedColumn as error:
            raise MalformedRecord(
                f"{path}: {error}. Leave it out by naming the columns to read: columns=[...]."
            ) from error


@dataclass(frozen=True)
class _RawInt96:
    """Holds a file that is opened once more, to read its columns of INT96 as nanoseconds modulo 2**64."""

    file: pq.ParquetFile
    names: list[str]


def _opened(file: InputFile, int96_unit: str = "us") -> pq.ParquetFile:
    path = file.path
    try:
        if file.is_local:
            return pq.ParquetFile(path, coerce_int96_timestamp_unit=int96_unit)
        # Of an object, the columns of a row group are asked for in few ranges.
        return pq.ParquetFile(file.open(), pre_buffer=True, coerce_int96_timestamp_unit=int96_unit)
    except FileNotFoundError:
        raise SourceError(f"{path} is missing")
    except pa.ArrowException as error:
        raise MalformedRecord(f"{path} is not a Parquet file, or is truncated: {_first_line(error)}") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be opened as a Parquet file: {_first_line(error)}") from error


class _OpenParquet(OpenFile):
    def __init__(
        self, path: str, file: pq.ParquetFile, schema: pa.Schema, lossy: LossyTimestamps, raw: _RawInt96 | None
    ) -> None:
        self._path = path
        self._file = file
        self._lossy = lossy
        self._raw = raw
        self._schema = schema
        self._batch_rows = _batch_rows(schema)

    def read(self, position: Position, end: int) -> Iterator[Portion]:
        first, skip_rows = position
        for group in range(first, end):
            row = 0
            for batch in self._batches(group):
                behind = row + batch.num_rows
                if behind > skip_rows:
                    start = max(row, skip_rows)
                    yield Portion(batch.slice(start - row), Position(group, start), Position(group, behind))
                row = behind
            skip_rows = 0

    def record_at(self, position: Position, row: pa.RecordBatch) -> Record:
        group, index = position
        return Record(f"{self._path}, row group {group}, row {index}", self._path, index, shown_row(row))

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        try:
            row = 0
            for batch, raw in zip(self._read(self._file, self._schema.names, group), self._read_raw(group)):
                yield conform(to_microseconds(batch, raw, self._lossy, row), self._schema)
                row += batch.num_rows
        except UnsupportedColumn as error:
            raise MalformedRecord(f"{self._path}, row group {group}: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise fault_of(error)(
                f"{self._path}, row group {group} cannot be read, the file is damaged: {_first_line(error)}"
            ) from error

    def _read(self, file: pq.ParquetFile, names: list[str], group: int) -> Iterator[pa.RecordBatch]:
        found: Iterator[pa.RecordBatch] = file.iter_batches(
            self._batch_rows, row_groups=[group], columns=names, use_threads=False
        )
        return found

    def _read_raw(self, group: int) -> Iterator[pa.RecordBatch | None]:
        return repeat(None) if self._raw is None else self._read(self._raw.file, self._raw.names, group)

    def close(self) -> None:
        self._file.close(force=True)  # without `force` pyarrow closes only a file that it has opened by its path
        if self._raw is not None:
            self._raw.file.close(force=True)


def _batch_rows(schema: pa.Schema) -> int:
    try:
        row_bits: int = sum(field.type.bit_width for field in schema)
    except ValueError:  # a column of values of any size
        return _ROWS_READ_AHEAD
    return max(_ROWS_READ_AHEAD, min(_BYTES_READ_AHEAD * 8 // max(row_bits, 1), _ROWS_READ_AHEAD_MAX))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class ParquetBulkWriters:
    """Makes the format that Parquet is written in."""

    @staticmethod
    def for_row_type(row_type: TypeInformation | None = None, compression: str = "snappy") -> ParquetWriteFormat:
        """Make the format.

        Args:
            row_type: The type of the rows. None: that of the stream.
            compression: "snappy", "zstd", "gzip", "lz4" or "none".

        Returns:
            The format. Raises ValueError for another compression.
        """
        return ParquetWriteFormat(row_type, compression)


class ParquetWriteFormat(FileWriteFormat):
    """Writes Parquet with a column per field of the stream's type."""

    default_suffix = ".parquet"
    unconcatenable_because = "Parquet files end in a footer; take FileCompactor.parquet_file_compactor()"

    def __init__(self, row_type: TypeInformation | None = None, compression: str = "snappy") -> None:
        known = ("snappy", "zstd", "gzip", "lz4", "none")
        if compression not in known:
            raise ValueError(f"compression {compression!r} is none of {', '.join(known)}")
        self._row_type = row_type
        self._compression = compression

    def validate(self, input_type: TypeInformation | None) -> None:
        """Check that the rows can be written as Parquet.

        Args:
            input_type: The type of the rows, or None.

        Raises:
            SinkError: They have no declared type, or another than the format.
        """
        if input_type is None:
            raise SinkError(
                "a stream without a declared type cannot be written as Parquet: its rows have no columns. "
                "Declare the type of the operator before the sink (output_type=Types.ROW_NAMED([...], [...]))."
            )
        if self._row_type is not None and self._row_type.schema != input_type.schema:
            raise SinkError(
                f"the Parquet writer is declared for {self._row_type}, but the stream's rows are {input_type}"
            )

    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        assert input_type is not None
        return _ParquetPart(file, input_type.schema, self._compression)


class _ParquetPart(PartWriter):
    """Gathers rows to row groups: a row group per batch would make files of mostly footers."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, compression: str) -> None:
        super().__init__(file)
        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression=compression)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch.select(self._schema.names))
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()
        elif len(self._pending) >= _PENDING_BATCHES_MAX:
            # Many small slices of large batches would keep the large ones alive.
            self._pending = [pa.concat_batches(self._pending)]

    @property
    def written_bytes(self) -> int:
        return self._file.tell() + self._pending_bytes

    @property
    def buffered_bytes(self) -> int:
        return self._pending_bytes

    def write_buffered(self) -> None:
        self._write_row_group()

    def finish(self) -> None:
        self._write_row_group()
        self._writer.close()

    def abandon(self) -> None:
        self._pending = []
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()

    def _write_row_group(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
            self._pending = []
            self._pending_bytes = 0
