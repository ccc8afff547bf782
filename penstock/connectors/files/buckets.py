"""Sorts the rows of a file sink into directories below the sink's."""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.composite_types import RowType, TupleType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError

_NULL_BUCKET = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""The characters that Hive and Spark escape in the names of partitions."""

_DATE_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "DDD": "%j"}
_DATE_PATTERN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


class BucketAssigner(ABC):
    """Sorts the rows of a file sink into buckets, which are directories below the sink's.

    `column_bucket_assigner` is ours, the other names are PyFlink's. A subclass may sort rows into buckets of its own.
    """

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Write all files to the sink's directory itself, the default."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Make a bucket for the time at which rows arrive at the sink.

        Args:
            format_str: A pattern of Java's DateTimeFormatter, with yyyy, yy, MM, dd, DDD, HH, mm, ss and text in
                quotes.
            timezone_id: A time zone such as "Europe/Berlin"; None: that of the machine.

        Returns:
            The assigner. Raises ValueError if an argument is not understood.
        """
        return _DateTime(format_str, timezone_id)

    @staticmethod
    def column_bucket_assigner(*columns: str, keep_columns: bool = False) -> BucketAssigner:
        """Make a bucket `column=value` for each value of a column, one in the other for several columns.

        Hive and Spark name their partitions so: `spark.read.parquet(path)` has the columns back. Null and "" go to
        `__HIVE_DEFAULT_PARTITION__`, which Spark reads as null.

        Example:
            builder = FileSink.for_bulk_format(path, ParquetBulkWriters.for_row_type())
            builder.with_bucket_assigner(BucketAssigner.column_bucket_assigner("day", "country"))

        Args:
            columns: Names of columns of whole numbers, booleans, dates, timestamps or strings.
            keep_columns: True: the files contain the columns, too. Spark's readers do not expect them there.

        Returns:
            The assigner. Raises ValueError without a column, or if one is named twice.
        """
        return _Columns(columns, keep_columns)

    def written_type(self, input_type: TypeInformation | None) -> TypeInformation | None:
        """Return the type of the written part of a row. Raises `SinkError` if rows of this type have no bucket.

        Args:
            input_type: The type of the stream's rows, or None.

        Returns:
            The type, or None.
        """
        return input_type

    @abstractmethod
    def assign(self, batch: pa.RecordBatch, input_type: TypeInformation | None) -> Iterable[tuple[str, pa.RecordBatch]]:
        """Sort the rows of a batch.

        Args:
            batch: The rows.
            input_type: Their type, or None.

        Returns:
            The path of each bucket, relative to the sink's directory ("" for itself), and its rows in their order, in
            the columns of `written_type`.
        """


class _BasePath(BucketAssigner):
    def assign(self, batch: pa.RecordBatch, input_type: TypeInformation | None) -> Iterable[tuple[str, pa.RecordBatch]]:
        return [("", batch)]


class _DateTime(BucketAssigner):
    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        self._format = "".join(_strftime(match, format_str) for match in _DATE_PATTERN.finditer(format_str))
        example = datetime.datetime(2000, 1, 1).strftime(self._format)
        if any(part.startswith((".", "_")) or not part for part in example.split("/")):
            raise ValueError(f"{format_str!r} is no name of a directory that readers see")
        try:
            self._zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f'time zone {timezone_id!r} is not known; "UTC" or "Europe/Berlin" are') from error
        self.now: Callable[[Any], datetime.datetime] = datetime.datetime.now

    def assign(self, batch: pa.RecordBatch, input_type: TypeInformation | None) -> Iterable[tuple[str, pa.RecordBatch]]:
        return [(self.now(self._zone).strftime(self._format), batch)]


def _strftime(match: re.Match[str], pattern: str) -> str:
    if match[1] is not None:
        return match[1].replace("%", "%%") or "'"
    if match[2] is None:
        return match[0].replace("%", "%%")
    if match[0] not in _DATE_LETTERS:
        known = ", ".join(_DATE_LETTERS)
        raise ValueError(f"{match[0]!r} in {pattern!r} is not understood; {known} are, and text in quotes")
    return _DATE_LETTERS[match[0]]


class _Columns(BucketAssigner):
    def __init__(self, columns: tuple[str, ...], keep_columns: bool) -> None:
        if not columns or not all(isinstance(name, str) and name for name in columns):
            raise ValueError(f"buckets are made of columns, by their names, not of {columns}")
        if len(set(columns)) != len(columns):
            raise ValueError(f"columns of buckets repeat: {', '.join(columns)}")
        self._columns = columns
        self._keeps = keep_columns

    def written_type(self, input_type: TypeInformation | None) -> TypeInformation | None:
        if not isinstance(input_type, (RowType, TupleType)):
            raise SinkError(
                f"rows of {input_type or 'no declared type'} have no columns to make buckets of. "
                "Declare the type of the operator before the sink (output_type=Types.ROW_NAMED([...], [...]))."
            )
        schema = input_type.schema
        for name in self._columns:
            if name not in schema.names:
                raise SinkError(f"no column {name!r} to make buckets of; there are {', '.join(schema.names)}")
            _raise_where_no_name(name, schema.field(name).type)
        if self._keeps:
            return input_type
        left = [
            (name, kind)
            for name, kind in zip(input_type.field_names, input_type.field_types, strict=True)
            if name not in self._columns
        ]
        if not left:
            raise SinkError(f"all columns ({', '.join(self._columns)}) are buckets: nothing is left to be written")
        return RowType(tuple(kind for _, kind in left), tuple(name for name, _ in left))

    def assign(self, batch: pa.RecordBatch, input_type: TypeInformation | None) -> Iterable[tuple[str, pa.RecordBatch]]:
        written = self.written_type(input_type)
        assert written is not None
        rows = batch.select(written.schema.names)
        codes = np.zeros(batch.num_rows, np.int64)
        values: list[list[str]] = []
        for name in self._columns:
            encoded = batch.column(name).dictionary_encode(null_encoding="encode")
            values.append([f"{escaped(name)}={_directory(value)}" for value in _texts(encoded.dictionary)])
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        found, firsts = np.unique(codes[order], return_index=True)
        if len(found) == 1:
            yield _path(int(found[0]), values), rows
            return
        ordered = rows.take(pa.array(order))
        for code, first, end in zip(found.tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True):
            yield _path(code, values), ordered.slice(first, end - first)


def escaped(text: str) -> str:
    """Escape a name or value as Hive and Spark do in the names of directories.

    Args:
        text: The name or value.

    Returns:
        The escaped text.
    """
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _raise_where_no_name(name: str, arrow: pa.DataType) -> None:
    kinds = pa.types
    if not (
        kinds.is_integer(arrow)
        or kinds.is_boolean(arrow)
        or kinds.is_string(arrow)
        or kinds.is_date(arrow)
        or kinds.is_timestamp(arrow)
    ):
        raise SinkError(
            f"column {name!r} is {arrow}: buckets are made of whole numbers, booleans, dates, timestamps and strings"
        )


def _texts(values: pa.Array) -> list[str | None]:
    texts = values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        texts = pc.replace_substring_regex(texts, r"\.?0*$", "")
    return list(texts.to_pylist())


def _directory(value: str | None) -> str:
    return escaped(value) if value else _NULL_BUCKET


def _path(code: int, values: list[list[str]]) -> str:
    parts = []
    for names in reversed(values):
        code, index = divmod(code, len(names))
        parts.append(names[index])
    return "/".join(reversed(parts))
