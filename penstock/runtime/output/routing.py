"""Routes batches of rows to consumers: partitioners, vectorised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable

import numpy as np
import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.graph.job_graph import Edge
from penstock.graph.logical import PartitionerKind
from penstock.graph.two_phases import PartialAggregates
from penstock.operators.batches import KEY_GROUP_FIELD, declared_key, key_field, row_type
from penstock.operators.windows.partial_aggregates import PartialAggregator
from penstock.protocol.values.keys import KeyEncoder, UnsupportedKey, key_groups, owner
from penstock.runtime.output.key_columns import KeyColumns, NullKey

Routed = list[tuple[int, pa.RecordBatch]]
"""(position among the edge's consumers, rows)"""


class Router(ABC):
    """Routes the rows of one output edge at one producer. Only its subtask calls it."""

    needs_rows = False
    """True if `route` looks at the rows as Python objects."""

    @property
    def holds(self) -> bool:
        """Return whether rows are held in here to be aggregated."""
        return False

    @abstractmethod
    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        """Route a batch. `rows`: the same as Python objects, passed if `needs_rows`. Raises `OperatorFailure`."""

    def flush_held(self) -> Routed:
        """Return the result of all held rows; none is held afterwards."""
        return []


class _One(Router):
    """Gives every batch to the only consumer."""

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        return [(0, batch)]


class _All(Router):
    """Gives every batch to all consumers."""

    def __init__(self, consumers: int) -> None:
        self._consumers = consumers

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        return [(c, batch) for c in range(self._consumers)]


class _InTurn(Router):
    """Deals even shares in runs of adjacent rows; the next batch continues where this one ended."""

    def __init__(self, consumers: int, first: int) -> None:
        self._consumers = consumers
        self._next = first % consumers

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        count, consumers = batch.num_rows, self._consumers
        batches: Routed = []
        start = 0
        for nth in range(min(count, consumers)):
            end = count * (nth + 1) // min(count, consumers)
            batches.append(((self._next + nth) % consumers, batch.slice(start, end - start)))
            start = end
        self._next = (self._next + len(batches)) % consumers
        return batches


class _Scattered(Router):
    """Scatters uniformly at random, by a generator of its own so that user code that seeds `random` does not steer
    it.
    """

    def __init__(self, consumers: int, seed: int) -> None:
        self._consumers = consumers
        self._random = np.random.default_rng(seed)

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        targets = self._random.integers(0, self._consumers, batch.num_rows)
        return split_by_target(batch, targets, self._consumers)


def split_by_target(batch: pa.RecordBatch, targets: np.ndarray, consumers: int) -> Routed:
    """Split a batch: sort by target once (a stable sort of small integers is a radix sort), take once, slice."""
    if batch.num_rows == 1:
        return [(int(targets[0]), batch)]
    narrow = targets.astype(np.uint8 if consumers <= 256 else np.uint16, copy=False)
    counts = np.bincount(narrow, minlength=consumers)
    busiest = int(counts.argmax())
    if counts[busiest] == batch.num_rows:
        return [(busiest, batch)]
    batch = batch.take(pa.array(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(counts)
    return [(int(c), batch.slice(int(ends[c] - counts[c]), int(counts[c]))) for c in np.flatnonzero(counts)]


class _ByKey(Router):
    """Routes by a key that the user's function gives for each row. The key and its key group are added as columns."""

    needs_rows = True

    def __init__(self, edge: Edge, max_parallelism: int, operator: str) -> None:
        partitioner = edge.partitioner
        assert partitioner.key_selector is not None
        self._select: Callable[[Any], Any] = partitioner.key_selector
        declared = declared_key(partitioner)
        self._encoder = KeyEncoder(declared, max_parallelism)
        self._key_field = key_field(declared)
        self._max_parallelism = max_parallelism
        self._parallelism = edge.target_parallelism
        self._operator = operator

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        assert rows is not None
        select = self._select
        try:
            keys = [select(row) for row in rows]
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self._operator} (its key selector)", error) from error
        try:
            values, groups = self._encoder.encode(keys)
        except UnsupportedKey as error:
            row = rows[error.row_index] if error.row_index is not None else "?"
            message = f"key_by after it: {error}; the row was {row!r:.200}"
            raise OperatorFailure(self._operator, UnsupportedKey(message), ours=True) from error
        batch = batch.append_column(self._key_field, pa.array(values, self._key_field.type))
        batch = batch.append_column(KEY_GROUP_FIELD, pa.array(groups))
        targets = groups.astype(np.uint32) * self._parallelism // self._max_parallelism
        return split_by_target(batch, targets, self._parallelism)


class _ByColumns(Router):
    """Routes by a key that is made of columns of the rows, so that only the key group is added."""

    def __init__(self, edge: Edge, max_parallelism: int, operator: str) -> None:
        columns = edge.partitioner.key_columns
        assert columns is not None
        self._given_type = row_type(edge.type)
        self._columns = KeyColumns(row_type(edge.type), columns)
        self._max_parallelism = max_parallelism
        self._parallelism = edge.target_parallelism
        self._operator = operator
        owners = [owner(group, max_parallelism, self._parallelism) for group in range(max_parallelism)]
        self._owner_of = np.array(owners, np.uint8 if self._parallelism <= 256 else np.uint16)

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None, given: pa.RecordBatch | None = None) -> Routed:
        """Route a batch. `given`: its rows as they came, for messages, if that is another batch."""
        try:
            hashes = self._columns.hashes(batch)
        except NullKey as error:
            # Rows with null keys are neither aggregated nor held, so `batch` and `given` have the same row here.
            row = self._given_type.decode((batch if given is None else given).slice(error.row, 1))[0]
            told = (
                f"key_by after it: column {error.column!r} is null in a row, and a key never is: filter such rows out, "
                f"or give them a value of their own; the row was {row!r:.200}"
            )
            raise OperatorFailure(self._operator, UnsupportedKey(told), ours=True) from None
        groups = key_groups(hashes, self._max_parallelism)
        batch = batch.append_column(KEY_GROUP_FIELD, pa.array(groups))
        if self._parallelism == 1:
            return [(0, batch)]
        return split_by_target(batch, self._owner_of.take(groups), self._parallelism)


class _ByPartials(_ByColumns):
    """Routes by columns in front of a window in two phases: rows are held to be aggregated first."""

    def __init__(
        self, edge: Edge, partial: PartialAggregates, max_parallelism: int, operator: str, limits: Limits
    ) -> None:
        super().__init__(edge, max_parallelism, operator)
        self._given_type = partial.given_type
        self._partial = PartialAggregator(partial, limits)

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None, given: pa.RecordBatch | None = None) -> Routed:
        route = super().route
        return [routed for partials in self._partial.add(batch) for routed in route(partials, None, batch)]

    @property
    def holds(self) -> bool:
        return self._partial.holds

    def flush_held(self) -> Routed:
        route = super().route
        return [routed for partials in self._partial.flush_held() for routed in route(partials, None)]


class _Custom(Router):
    """Routes by the number that the user's partitioner gives for the key of each row."""

    needs_rows = True

    def __init__(self, edge: Edge, max_parallelism: int, operator: str) -> None:
        partitioner = edge.partitioner
        assert partitioner.key_selector is not None and partitioner.custom is not None
        self._select = partitioner.key_selector
        self._partition = partitioner.custom
        self._encoder = KeyEncoder("canonical", max_parallelism)
        self._key_field = key_field("canonical")
        self._parallelism = edge.target_parallelism
        self._operator = operator

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        assert rows is not None
        count = self._parallelism
        try:
            keys = [self._select(row) for row in rows]
        except USER_ERRORS as error:
            raise OperatorFailure(f"{self._operator} (its custom partitioner)", error) from error
        targets = custom_targets(self._partition, keys, count, self._operator)
        try:
            values, _ = self._encoder.encode(keys)
        except UnsupportedKey as error:
            raise OperatorFailure(self._operator, error, ours=True) from error
        batch = batch.append_column(self._key_field, pa.array(values, self._key_field.type))
        return split_by_target(batch, targets, count)


def custom_targets(partition: Callable[[Any, int], int], keys: list[Any], count: int, operator: str) -> np.ndarray:
    """Return the consumer that a custom partitioner picks for each key. Raises `OperatorFailure`."""
    try:
        targets = [partition(key, count) for key in keys]
    except USER_ERRORS as error:
        raise OperatorFailure(f"{operator} (its custom partitioner)", error) from error
    for key, target in zip(keys, targets):
        if not isinstance(target, (int, np.integer)) or not 0 <= target < count:
            message = (
                f"partition_custom after it: the partitioner returned {target!r} "
                f"for the key {key!r:.80}; it must be an int in [0, {count})"
            )
            raise OperatorFailure(operator, ValueError(message), ours=True)
    return np.array(targets, dtype=np.int64)


def create_router(
    edge: Edge, producer: int, target_max_parallelism: int, operator: str, seed: int, limits: Limits = USUAL
) -> Router:
    """Build the router of an edge. `operator` is the producer's name, for messages."""
    consumers = len(edge.consumers_of(producer))
    match edge.partitioner.kind:
        case PartitionerKind.HASH if edge.partitioner.partial is not None:
            return _ByPartials(edge, edge.partitioner.partial, target_max_parallelism, operator, limits)
        case PartitionerKind.HASH if edge.partitioner.key_columns is not None:
            return _ByColumns(edge, target_max_parallelism, operator)
        case PartitionerKind.HASH:
            return _ByKey(edge, target_max_parallelism, operator)
        case PartitionerKind.CUSTOM:
            return _Custom(edge, target_max_parallelism, operator)
        case PartitionerKind.BROADCAST:
            return _All(consumers)
        case PartitionerKind.GLOBAL:
            return _One()
        case PartitionerKind.SHUFFLE if consumers > 1:
            return _Scattered(consumers, seed)
        case _ if consumers > 1:
            return _InTurn(consumers, producer)
        case _:
            return _One()
