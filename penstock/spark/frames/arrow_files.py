"""Has Spark write a DataFrame as Arrow record batches (`penstock/connectors/files/arrow_messages.py`).

The executors' Java turns rows into batches, as for `toArrow()`, and Spark's text writer, to which a message is a line
and the marker a line's end, brings them to files; no Python stands between. It takes half the time of Parquet, and
what slots read needs no decoding. How many rows a message has is said beforehand, so their size must be known: this is
for DataFrames whose columns are all numbers, truth values and times; any other is written as Parquet.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors.files.arrow_messages import MARKER_BYTES

# A message that fits in a core's own cache is passed on fastest.
_MESSAGE_BYTES = 512 << 10
_MESSAGE_ROWS_MAX = 1 << 16
_MESSAGE_ROWS_MAX_ANY_SIZE = 1024
"""Rows with strings may be of any size, and a message is held in memory whole."""
_ZONE = "UTC"
_FIXED_SIZE = (sql.NumericType, sql.BooleanType, sql.DateType, sql.TimestampType, sql.TimestampNTZType)


class NoArrowWriter(Exception):
    """Signals that this Spark cannot write Arrow with the caller's number of rows. Nothing was written."""


def has_rows_of_fixed_size(kind: sql.DataType) -> bool:
    """Return whether all values have a fixed size. `kind`: a DataFrame's schema, or a column's type."""
    if isinstance(kind, sql.StructType):
        return all(has_rows_of_fixed_size(field.dataType) for field in kind.fields)
    return isinstance(kind, _FIXED_SIZE)


def write_arrow(frame: DataFrame, uri: str, options: dict[str, str]) -> dict[str, str]:
    """Have Spark compute `frame` and write it below `uri`. `options`: for Spark's writer. Returns what `frame_files`
    needs to read the files, as values that JSON can hold. Raises `NoArrowWriter`, and as Spark does.
    """
    session = frame.sparkSession
    jvm: Any = session._jvm
    marker = secrets.token_hex(MARKER_BYTES // 2)
    with arrow_messages_of(frame) as messages:
        lines = session._jsparkSession.createDataset(messages, jvm.org.apache.spark.sql.Encoders.BINARY()).toDF()
        text = DataFrame(lines, session).selectExpr("cast(value as string)")
        text.write.options(**options, lineSep=marker, compression="none").text(uri)
    return how_to_read(frame, marker)


def how_to_read(frame: DataFrame, marker: str) -> dict[str, str]:
    """Return the settings with which `frame_files` reads the messages of a DataFrame."""
    schema = to_arrow_schema(frame.schema, timezone=_ZONE)
    return {"schema": base64.b64encode(schema.serialize()).decode(), "marker": marker}


@contextmanager
def arrow_messages_of(frame: DataFrame) -> Iterator[Any]:
    """Yield Java's RDD of the messages of a DataFrame, which is to be computed in the context. Raises `NoArrowWriter`,
    and as Spark does.
    """
    row_bytes = int(frame._jdf.schema().defaultSize())
    rows_max = _MESSAGE_ROWS_MAX if has_rows_of_fixed_size(frame.schema) else _MESSAGE_ROWS_MAX_ANY_SIZE
    rows = max(1, min(_MESSAGE_BYTES // row_bytes, rows_max))
    with _settings_for_tasks(frame.sparkSession):
        # The last two arguments: two fields may have the same name; no large strings.
        yield _if_there(lambda: frame._jdf.toArrowBatchRdd(rows, _ZONE, False, False))


@contextmanager
def _settings_for_tasks(session: SparkSession) -> Iterator[None]:
    """Set the session's settings as properties of the job, where tasks read them. Spark does so when it runs a query,
    but not when it makes an RDD of one, which may run the query's first stages at once.
    """
    context: Any = session.sparkContext._jsc.sc()
    before = context.getLocalProperties()
    properties = before.clone()
    properties.putAll(_if_there(lambda: session._jsparkSession.conf().getAllAsJava()))
    context.setLocalProperties(properties)
    try:
        yield
    finally:
        context.setLocalProperties(before)


def _if_there(call: Callable[[], Any]) -> Any:
    """Return the result of `call`; raise `NoArrowWriter` if this version of Spark lacks the method that it calls."""
    try:
        return call()
    except Py4JError as error:
        if isinstance(error, Py4JJavaError) or "does not exist" not in str(error):
            raise
        raise NoArrowWriter(str(error)) from None
