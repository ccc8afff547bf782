"""Names the replacements of PyFlink's and Spark's names that are not here, from one table."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

_OLD_SOURCES = "sources are given to from_source(source, watermark_strategy, name)"
_SERVICE = "there is no such connector in this version: use Kafka, files or a DataFrame, or a function in map()"
_JVM = "it belongs to Flink's JVM, and has no counterpart here: leave it out"
_GROUP = "rows of equal keys come together by key_by('column')"
_COLUMNS = "columns are made by with_columns(name=expression)"
_COLLECT = "rows come to the program by execute_and_collect(), or as a Spark DataFrame by to_spark()"
_CSV = "for_schema(CsvSchema) has what can be set"

ADVICE = {
    # ---- modules ------------------------------------------------------------------------------------------------
    "penstock.common.io": _OLD_SOURCES,
    "penstock.datastream.formats.orc": "write Parquet, with ParquetBulkWriters.for_row_type()",
    "penstock.datastream.connectors.dynamic_kafka": "one cluster is read by KafkaSource",
    "penstock.table": "there is no Table API: use streams with columns (docs/columns.md), or to_spark() and Spark SQL",
    **{
        f"penstock.datastream.connectors.{service}": _SERVICE
        for service in ("cassandra", "elasticsearch", "jdbc", "kinesis", "pulsar", "rabbitmq")
    },
    # ---- classes ------------------------------------------------------------------------------------------------
    "ResultFuture": "async_invoke() returns its list of rows: return [row] in place of result_future.complete([row])",
    "StreamingFileSink": "FileSink writes files: FileSink.for_row_format(path, encoder)",
    "CachedDataStream": "a bounded stream is kept as a DataFrame: stream.to_spark()",
    **{f"{kind}TypeInfo": "Types makes all types" for kind in ("Instant", "SqlTime", "PrimitiveArray")},
    # ---- methods ------------------------------------------------------------------------------------------------
    "StreamExecutionEnvironment.create_input": _OLD_SOURCES,
    "FileSourceBuilder.set_split_assigner": "splits go to the subtask that asks next: leave it out",
    "DataStream.group_by": _GROUP,
    "DataStream.groupBy": _GROUP,
    "DataStream.withColumn": _COLUMNS,
    "DataStream.with_column": _COLUMNS,
    "DataStream.where": "rows are chosen by filter(pc.field('a') > 1) or filter(lambda row: ...)",
    "DataStream.foreach": "a function of each row is map(f), and a stream ends in print() or sink_to(sink)",
    "DataStream.show": "rows are shown by print()",
    "DataStream.collect": _COLLECT,
    "DataStream.toPandas": _COLLECT,
    "DataStream.write": "rows are written by sink_to(sink)",
    "DataStream.cache": "a bounded stream is kept as a DataFrame: stream.to_spark()",
    "DataStream.count_window": "it belongs to keyed streams; for all rows there is count_window_all(size)",
    "CsvSchemaBuilder.set_allow_comments": _CSV,
    "CsvSchemaBuilder.set_any_property_name": _CSV,
}  # fmt: skip
"""The advice for a module, a class, or a method as `Class.method`, whose class may be a base of the object's."""


def advice_for(kind: type, name: str) -> str | None:
    """Return the advice for a missing method.

    Args:
        kind: The class that was asked for it.
        name: The method.

    Returns:
        The advice; None if there is none.
    """
    found = (ADVICE.get(f"{base.__name__}.{name}") for base in kind.__mro__)
    return next((advice for advice in found if advice is not None), None)


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have.

    Args:
        owner: The object.
        name: The attribute.

    Returns:
        The error, with advice, or with the name that was probably meant.
    """
    kind = type(owner)
    if not name.startswith("_") and (advice := advice_for(kind, name)) is not None:
        return AttributeError(f"{kind.__name__} has no {name}(): {advice}", name=name)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        close = difflib.get_close_matches(name, [n for n in dir(kind) if not n.startswith("_")], n=1)
        text += f"; did you mean {close[0]!r}?" if close else ""
    return AttributeError(text, name=name)


class AdvisesOnMissing:
    """Gives a class errors that say what to use in place of PyFlink's methods that it has not."""

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)


_OFFERING = (
    "common", "datastream", "common.metrics", "common.typeinfo", "common.watermark_strategy", "datastream.functions",
    "datastream.state", "datastream.window", "datastream.connectors.base", "datastream.connectors.file_system",
    "datastream.connectors.number_seq", "datastream.connectors.datagen", "datastream.connectors.hybrid_source",
    "datastream.connectors.kafka", "datastream.formats.avro", "datastream.formats.csv", "datastream.formats.json",
    "datastream.formats.parquet",
)  # fmt: skip
"""The public modules that are searched for a name, the best first. Those of connectors and formats load libraries."""


def _home_of(name: str) -> str | None:
    """Return the public module that has a class. Other names are not searched for: they may be submodules."""
    for module in _OFFERING if name[:1].isupper() else ():
        try:
            offered = vars(importlib.import_module(f"penstock.{module}"))
        except ImportError:  # its library is not installed
            continue
        is_ours = getattr(offered.get(name), "__module__", "").startswith("penstock.")
        if is_ours and name in offered.get("__all__", (name,)):
            return f"penstock.{module}"
    return None


def advising_getattr(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that offers PyFlink's names.

    Args:
        module: The module's name.

    Returns:
        The function. It raises ImportError for a name with advice and for one of another module: of an AttributeError
        `from module import name` would leave out the text.
    """

    def __getattr__(name: str) -> Any:
        if (advice := ADVICE.get(name)) is not None:
            raise ImportError(f"{module} has no {name}: {advice}", name=module)
        if (home := _home_of(name)) is not None:
            raise ImportError(f"{module} has no {name}: it is in {home}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class _ModuleAdvice:
    """Finds no module, and raises an error with advice for those of PyFlink that are not here."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.startswith("penstock.") and (advice := ADVICE.get(name)) is not None:
            raise ModuleNotFoundError(f"there is no module {name}: {advice}", name=name)
        return None


def install_module_advice() -> None:
    """Let imports of PyFlink's modules that are not here raise errors with advice. Asked after all other finders."""
    if _ModuleAdvice not in sys.meta_path:
        sys.meta_path.append(_ModuleAdvice)
