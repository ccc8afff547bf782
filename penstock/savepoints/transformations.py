"""Turns rows into the state of an operator (Flink: OperatorTransformation)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.common.program.operator_uid import uid_of
from penstock.common.row_types.row import Row
from penstock.savepoints.savepoint_functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)

BootstrapFunction = KeyedStateBootstrapFunction | StateBootstrapFunction | BroadcastStateBootstrapFunction


@dataclass(frozen=True)
class OperatorIdentifier:
    """Names an operator of a job, by its uid or by the id that is made of it."""

    id: str
    uid: str | None = None

    @staticmethod
    def for_uid(uid: str) -> OperatorIdentifier:
        """Return the operator that the program calls so: `.uid(...)`."""
        return OperatorIdentifier(uid_of(uid), uid)

    @staticmethod
    def for_uid_hash(uid_hash: str) -> OperatorIdentifier:
        """Return the operator with this id (32 hex digits), as `penstock state inspect` shows those without a uid."""
        return OperatorIdentifier(uid_hash)

    def __str__(self) -> str:
        return self.uid or self.id


@dataclass(frozen=True)
class StateBootstrapTransformation:
    """Describes state that is made of rows. `key_selector`: selects the key of a row, for a keyed operator."""

    rows: Any
    function: BootstrapFunction
    key_selector: Callable[[Any], Any] | None = None
    max_parallelism: int | None = None

    def set_max_parallelism(self, max_parallelism: int) -> StateBootstrapTransformation:
        """Return the same with a max parallelism: that of the operator in the job, by which its state is split.

        Args:
            max_parallelism: The number of key groups. Not given: that of the savepoint.
        """
        return replace(self, max_parallelism=max_parallelism)


class OperatorTransformation:
    """Begins a transformation of rows into state.

    Example:
        OperatorTransformation.bootstrap_with(rows).key_by(lambda row: row.user).transform(Bootstrap())
    """

    @staticmethod
    def bootstrap_with(rows: Any) -> OneInputOperatorTransformation:
        """Take rows.

        Args:
            rows: An iterable, an Arrow table or reader, or a Spark DataFrame. Rows of the last two come as `Row`s, one
                by one, so they may be more than fit into memory.
        """
        return OneInputOperatorTransformation(rows)


@dataclass(frozen=True)
class OneInputOperatorTransformation:
    """Holds the rows that operator state is made of, or keyed state after `key_by`."""

    rows: Any

    def key_by(self, key_selector: Callable[[Any], Any] | str) -> KeyedOperatorTransformation:
        """Give each row a key, as the job does.

        Args:
            key_selector: Returns the key of a row, or names the field that is the key.
        """
        if isinstance(key_selector, str):
            return KeyedOperatorTransformation(self.rows, _Field(key_selector))
        return KeyedOperatorTransformation(self.rows, key_selector)

    def transform(
        self, function: StateBootstrapFunction | BroadcastStateBootstrapFunction
    ) -> StateBootstrapTransformation:
        """Say which function makes the state of an operator without keys."""
        if not isinstance(function, (StateBootstrapFunction, BroadcastStateBootstrapFunction)):
            raise TypeError(
                "transform() takes a StateBootstrapFunction or a BroadcastStateBootstrapFunction, and after key_by() a "
                f"KeyedStateBootstrapFunction; got {function!r:.80}"
            )
        return StateBootstrapTransformation(self.rows, function)


@dataclass(frozen=True)
class KeyedOperatorTransformation:
    """Holds the rows that keyed state is made of, and how their key is found."""

    rows: Any
    key_selector: Callable[[Any], Any]

    def transform(self, function: KeyedStateBootstrapFunction) -> StateBootstrapTransformation:
        """Say which function makes the keyed state of an operator."""
        if not isinstance(function, KeyedStateBootstrapFunction):
            raise TypeError(f"after key_by() transform() takes a KeyedStateBootstrapFunction; got {function!r:.80}")
        return StateBootstrapTransformation(self.rows, function, self.key_selector)


@dataclass(frozen=True)
class _Field:
    """Selects a field of a row."""

    name: str

    def __call__(self, row: Any) -> Any:
        return row[self.name]


def rows_of(given: Any) -> Iterator[Any]:
    """Yield the rows of what `bootstrap_with` takes."""
    if isinstance(given, (pa.Table, pa.RecordBatch)):
        given = pa.RecordBatchReader.from_batches(given.schema, _batches(given))
    if isinstance(given, pa.RecordBatchReader):
        names = tuple(given.schema.names)
        for batch in given:
            for values in zip(*(column.to_pylist() for column in batch.columns)):
                yield Row.of_fields(names, values)
        return
    if hasattr(given, "toLocalIterator"):  # a DataFrame of Spark's, which is not ours to import here
        names = tuple(given.columns)
        for values in given.toLocalIterator():
            yield Row.of_fields(names, tuple(values))
        return
    if not isinstance(given, Iterable):
        raise TypeError(f"bootstrap_with() takes rows, an Arrow table or a DataFrame; got {given!r:.80}")
    yield from given


def _batches(given: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [given] if isinstance(given, pa.RecordBatch) else given.to_batches()
