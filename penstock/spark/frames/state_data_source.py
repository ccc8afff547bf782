"""Implements "penstock-state", a data source in Python: a checkpoint's state as Arrow batches, range by range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.common.configuration import Configuration
from penstock.common.options import ObjectStoreOptions
from penstock.common.options.stores import AZURE_KEY_PREFIX
from penstock.common.row_types.type_texts import parse_type
from penstock.common.settings.configuration_sources import load_configuration
from penstock.state.backend import StateError
from penstock.state.reading.checkpoint import Checkpoint
from penstock.state.reading.checkpoint_location import find_checkpoint
from penstock.state.reading.state_rows import StateRows
from penstock.storage.store_settings import StoreSettings

_OPTIONS = {
    "path": "a job's directory, a chk-<n> in it, or a savepoint",
    "uid": "the operator's uid, id or name",
    "name": "the state's name",
    "kind": "keyed (default), timers, windows, operator or broadcast",
    "key_type": "the type of keys, such as LONG",
    "pickles": "text (default) or bytes",
    "columns": "the columns to read, separated by commas",
    "num_partitions": "about how many tasks read it",
}
_KINDS = ("keyed", "timers", "windows", "operator", "broadcast")
_BYTES_PER_PARTITION = 128 * 1024 * 1024
"""The most bytes that one task reads: Spark's default for its own formats (spark.sql.files.maxPartitionBytes)."""
_SET_BY_SPARK = frozenset({"inferschema", "mergeschema"})


class StateDataSource(DataSource):
    """Reads the state of a checkpoint."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "penstock-state"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._state = _State(dict(options.items()))

    def schema(self) -> StructType:
        """Return the columns. Raises `StateError`, `StoreError`."""
        return from_arrow_schema(self._state.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the state, for the driver and for tasks."""
        return StateReader(self._state)


class StateReader(DataSourceReader):
    """Cuts the state into shares, and reads one in each task."""

    def __init__(self, state: _State) -> None:
        self._state = state

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each share."""
        return [InputPartition(number) for number in range(max(1, len(self._state.shares())))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one share."""
        return self._state.batches(partition.value)


class _State:
    """Holds the options. What they name is opened again in each process."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = _checked(given)
        configuration = load_configuration()
        of_stores = {k: v for k, v in given.items() if _is_of_store(k)}
        configuration.add_all(Configuration(of_stores))
        self._settings = StoreSettings.of(configuration)
        # A job continues: what is its newest checkpoint now is read by all tasks.
        self._path = find_checkpoint(self._given["path"], self._settings).path
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            rows = self._rows()
            found = rows.schema if isinstance(rows, pa.Table) else rows[0].reader().schema
            self._schema = pa.schema([found.field(name) for name in self._columns(found)])
        return self._schema

    def shares(self) -> list[StateRows]:
        """Return the shares, the same ones in each process; [] for operator state, which is small."""
        rows = self._rows()
        if isinstance(rows, pa.Table):
            return []
        size = sum(of_state.runs.length_bytes for of_state in rows)
        wanted = int(self._given.get("num_partitions", 0)) or -(-size // _BYTES_PER_PARTITION)
        return [share for of_state in rows for share in of_state.split(max(1, wanted))]

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        rows = self._rows()
        if isinstance(rows, pa.Table):
            yield from rows.select(schema.names).to_batches()
            return
        shares = self.shares()
        for batch in shares[number].batches() if shares else ():
            yield _as(batch.select(schema.names), schema, shares[number].described)

    def _rows(self) -> list[StateRows] | pa.Table:
        given = self._given
        checkpoint = Checkpoint(find_checkpoint(self._path, self._settings))
        uid, name = given["uid"], given.get("name", "")
        pickles: Any = given.get("pickles", "text")  # `Checkpoint` refuses other words
        key_type = None
        if "key_type" in given and (key_type := parse_type(given["key_type"].upper())) is None:
            raise StateError(f"the option key_type: {given['key_type']!r} is no type; write LONG, STRING, ...")
        match given.get("kind", "keyed"):
            case "keyed":
                return [checkpoint.keyed_state(uid, name, key_type, pickles)]
            case "windows":
                return [checkpoint.windows(uid, key_type, pickles)]
            case "timers":
                found = checkpoint.timers(uid, key_type)
                if not found:
                    raise StateError(f"operator '{uid}' has no timers in {self._path}")
                return found
            case "operator":
                return checkpoint.operator_state(uid, name, pickles)
        return checkpoint.broadcast_state(uid, name, pickles)

    def _columns(self, found: pa.Schema) -> list[str]:
        if "columns" not in self._given:
            return list(found.names)
        names = [name.strip() for name in self._given["columns"].split(",")]
        for name in names:
            if name not in found.names:
                raise StateError(f"the option columns: there is no column '{name}', but {', '.join(found.names)}")
        return names


def _checked(given: dict[str, str]) -> dict[str, str]:
    """Return our own options. Raises `StateError` for one that there is not, and for one that is missing."""
    ours = {key.lower(): value for key, value in given.items() if not _is_of_store(key)}
    for key in ours:
        if key not in _OPTIONS and key not in _SET_BY_SPARK:
            near = get_close_matches(key, _OPTIONS, 1)
            hint = f"; do you mean {near[0]}?" if near else ""
            told = "; ".join(f"{name}: {meaning}" for name, meaning in _OPTIONS.items())
            raise StateError(f"penstock-state has no option '{key}'{hint} There are {told}")
    kind = ours.get("kind", "keyed")
    if kind not in _KINDS:
        raise StateError(f"the option kind is one of {', '.join(_KINDS)}, not {kind!r}")
    for key in ("path", "uid", *([] if kind in ("timers", "windows") else ["name"])):
        if key not in ours:
            raise StateError(f"penstock-state needs the option {key}: {_OPTIONS[key]}")
    if not ours.get("num_partitions", "1").isdecimal():
        raise StateError(f"the option num_partitions is a number, not {ours['num_partitions']!r}")
    return ours


def _is_of_store(key: str) -> bool:
    options = vars(ObjectStoreOptions).values()
    return key.startswith(AZURE_KEY_PREFIX) or any(getattr(option, "key", None) == key for option in options)


def _as(batch: pa.RecordBatch, schema: pa.Schema, described: str) -> pa.RecordBatch:
    """Return the batch with the types that Spark was told: without a declared type each task sees other keys first."""
    if batch.schema.types == schema.types:
        return batch
    try:
        return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(batch.columns, schema)], schema=schema)
    except (pa.ArrowException, NotImplementedError) as error:
        raise StateError(
            f"{described}: not all keys are {schema.field(0).type}: give the type that they have (option key_type): "
            f"{error}"
        ) from None
