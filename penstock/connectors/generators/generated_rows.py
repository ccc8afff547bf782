"""Generates streams. A row is a function of its index alone, so a position is a number and a replay is exact.

The indices are dealt out to the splits in blocks, in turn (block b belongs to split b mod splits), so that all subtasks
are at about the same index at about the same time, as event times that follow the index need it.
"""

from __future__ import annotations

import re
from typing import Any, Callable

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.row_types.user_batches import independent
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.connectors.base import (
    FixedSplitEnumerator,
    MalformedRecord,
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)
from penstock.connectors.generators.rate import RateLimiter, RateLimiterStrategy

# No batch is longer than a block. The splits of a short stream have several all the same, so that they stay together.
_BLOCK_ROWS_MAX = 65_536
_BLOCK_ROWS_MIN = 4096
_BLOCKS_PER_SPLIT = 64


class BatchGeneratorSource(Source):
    """Generates rows in columns.

    `generate` is a function (first_index, count) -> `pa.RecordBatch` of exactly `count` rows, for the indices from
    `first_index` on, in the columns of `type_info`; further columns, such as `__timestamp__`, are kept. It must depend
    on its arguments alone: after a restore the same indices are asked for again, in batches with other bounds.

    `count` is the number of rows; None: the stream has no end. `rows_per_second` limits all subtasks together; None: no
    limit. Raises ValueError if `count` is negative or `rows_per_second` not positive.

    Example:
        def squares(first: int, count: int) -> pa.RecordBatch:
            return pa.RecordBatch.from_pydict({"value": np.arange(first, first + count) ** 2})

        env.from_source(BatchGeneratorSource(squares, 1000, Types.LONG()), WatermarkStrategy.no_watermarks(), "squares")
    """

    def __init__(
        self,
        generate: Callable[[int, int], pa.RecordBatch],
        count: int | None = None,
        type_info: TypeInformation | None = None,
        rows_per_second: float | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise ValueError(f"count must not be negative, it is {count}")
        self._generate = generate
        self._count = count
        self._type_info = type_info
        self._limit = RateLimiterStrategy(rows_per_second)
        self.bounded = count is not None

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def validate(self) -> None:
        """Generate a row, and check it. Raises `MalformedRecord`."""
        if self._count != 0:
            self._batch(0, 1)

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored, owner_field="split")
        block = _BLOCK_ROWS_MAX
        if self._count is not None:
            share = -(-self._count // parallelism)
            block = max(1, min(share, max(_BLOCK_ROWS_MIN, min(block, share // _BLOCKS_PER_SPLIT))))
        # Rows per 10 ms of rate, so that a slow stream alternates between its subtasks in time.
        if self._limit.rows_per_second is not None:
            block = max(1, min(block, int(self._limit.rows_per_second / 100)))
        splits = [
            encode_split({"split": split, "splits": parallelism, "block": block, "next": 0, "count": self._count})
            for split in range(parallelism)
        ]
        return FixedSplitEnumerator(splits, owner_field="split")

    def create_reader(self, context: ReaderContext) -> SourceReader:
        rate = self._limit.rows_per_second
        share = None if rate is None else rate / context.parallelism
        return _GeneratorReader(self._batch, RateLimiter(share))

    def _batch(self, first: int, count: int) -> pa.RecordBatch:
        batch = self._generate(first, count)
        if not isinstance(batch, pa.RecordBatch):
            raise MalformedRecord(f"the generator returned a {type(batch).__name__}, not a pyarrow.RecordBatch")
        if batch.num_rows != count:
            raise MalformedRecord(
                f"the generator returned {batch.num_rows} rows for the indices {first} to {first + count - 1}: "
                f"it must return one row for each of the {count}"
            )
        expected = self._schema
        if batch.schema.names[: len(expected)] != expected.names:
            raise MalformedRecord(
                f"the generator's columns are {', '.join(batch.schema.names)}; "
                f"they must begin with those of the declared type: {', '.join(expected.names)}"
            )
        for column, found in zip(expected, batch.schema, strict=False):
            if found.type != column.type:
                raise MalformedRecord(
                    f"the generator's column {column.name!r} is {found.type}, but the declared type has {column.type}"
                )
        return independent(batch)

    @property
    def _schema(self) -> pa.Schema:
        return (self._type_info or PICKLED).schema


class DataGeneratorSource(BatchGeneratorSource):
    """Generates a row per index, as Flink's `DataGeneratorSource` does.

    `generator` is a function index -> row, for 0 to `count` - 1. It must depend on the index alone (seed a random
    generator with it), because it is called again after a restore. `count` is the number of rows; None: the stream has
    no end. `rate_limiter` is a `RateLimiterStrategy`; `rows_per_second` does the same. `type_info` is the type of the
    rows; None: they are pickled.

    Example:
        DataGeneratorSource(lambda index: f"row {index}", 100, RateLimiterStrategy.per_second(10), Types.STRING())
    """

    def __init__(
        self,
        generator: Callable[[int], Any],
        count: int | None,
        rate_limiter: RateLimiterStrategy | None = None,
        type_info: TypeInformation | None = None,
        *,
        rows_per_second: float | None = None,
    ) -> None:
        if rate_limiter is not None and rows_per_second is not None:
            raise ValueError("give rate_limiter or rows_per_second, not both")
        if rate_limiter is not None:
            rows_per_second = rate_limiter.rows_per_second
        super().__init__(_RowByRow(generator, type_info), count, type_info, rows_per_second)


class _RowByRow:
    """Calls a row generator for each index of a batch."""

    def __init__(self, generator: Callable[[int], Any], type_info: TypeInformation | None) -> None:
        self._generator = generator
        self._type_info = type_info

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        row_type = self._type_info or PICKLED
        rows = []
        for index in range(first, first + count):
            try:
                rows.append(self._generator(index))
            except Exception as error:
                error.add_note(f"(the generator was called for index {index})")
                raise
        try:
            return pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)
        except RowTypeError as error:
            place = f"the generator's row for index {first + error.row_index}"
            raise MalformedRecord(re.sub(r"^row [0-9]+", place, str(error))) from error


class SplitsReader(SourceReader):
    """Holds the splits of a generator, each a dict with its number as `split`, and reads the first of them."""

    def __init__(self) -> None:
        self._splits: list[dict[str, Any]] = []
        self._current = ""
        self._first = 0
        """The index of the newest batch's first row."""
        self._finished: list[str] = []
        self._no_more = False

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits.extend(decode_split(split) for split in splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    @property
    def current_split(self) -> str:
        return self._current

    def _left(self) -> list[dict[str, Any]]:
        """Return the splits that still have rows."""
        return self._splits

    def splits_in_hand(self) -> list[str]:
        return [str(split["split"]) for split in self._left()]

    def queued_splits(self) -> list[str]:
        return self.splits_in_hand()[1:]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._left()]


class _GeneratorReader(SplitsReader):
    def __init__(self, batch: Callable[[int, int], pa.RecordBatch], limiter: RateLimiter) -> None:
        super().__init__()
        self._batch = batch
        self._limiter = limiter

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        while self._splits:
            split = self._splits[0]
            first, left = _place(split)
            if left <= 0:
                self._splits.pop(0)
                self._finished.append(str(split["split"]))
                continue
            wait_ms = self._limiter.wait_ms()
            if wait_ms > 0:
                return NotReady(wait_ms)
            rows = min(left, self._limiter.rows_allowed(rows_max))
            batch = self._batch(first, rows)
            self._limiter.take(rows)
            split["next"] += rows
            self._current, self._first = str(split["split"]), first
            # Splits take turns, so that one reader of several keeps them at about the same index.
            if rows == left and len(self._splits) > 1:
                self._splits.append(self._splits.pop(0))
            return batch
        return None if self._no_more else NotReady(None)

    def place_of(self, row: int) -> str:
        return f"the generator's row for index {self._first + row}"

    def _left(self) -> list[dict[str, Any]]:
        return [split for split in self._splits if _place(split)[1] > 0]


def _place(split: dict[str, Any]) -> tuple[int, int]:
    """Return the index of a split's next row, and how many rows follow it without a gap.

    0 rows or less: the split is read.
    """
    block, within = divmod(split["next"], split["block"])
    first = (block * split["splits"] + split["split"]) * split["block"] + within
    left = split["block"] - within
    return first, left if split["count"] is None else min(left, split["count"] - first)
