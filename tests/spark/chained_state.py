"""Declares a job whose incremental checkpoints are chains, and says what its state is after so many rows."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.protocol.values.metadata import Metadata
from penstock.state import read_checkpoint
from penstock.storage.store import StoreError
from tests.spark.small_jobs import file_sink, numbers

KEYS = 5_000
HOT_KEYS = 40
UID = "chained"
INCREMENTAL = {"state_backend_type": "rocksdb", "execution_checkpointing_incremental": "true"}
FILES_CHAINED = 3
"""The least number of files that the state of a subtask lies in, before a test believes in a chain."""


def key_of(row: int) -> int:
    """Return the key of a row: first all keys come, then some again and again, so that checkpoints store little."""
    return row if row < KEYS else row % HOT_KEYS


class Counted(KeyedProcessFunction):
    """Counts the rows of each key, and keeps the numbers of the last two."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        self.last.update([*list(self.last.get() or ())[-1:], row])
        yield f"{ctx.get_current_key()}:{n}"


def chained(env: StreamExecutionEnvironment, out: Path, rows: int, rows_per_second: float | None = None) -> None:
    """Declare the job. One subtask reads its rows in their order, so a checkpoint has the first ones."""
    source = numbers(env, rows, rows_per_second).set_parallelism(1)
    source.key_by(key_of, Types.LONG()).process(Counted(), Types.STRING()).uid(UID).sink_to(file_sink(out))


def files_of_state(metadata: Metadata) -> int:
    """Return how many files the state of a subtask lies in, at most."""
    return max(len({run.segment for run in subtask.keyed}) for subtask in metadata.subtasks)


def is_chained(job: str, configuration: Configuration | None = None) -> bool:
    """Return whether the newest checkpoint of a running job is a chain."""
    with suppress(StoreError):  # it was deleted while it was opened
        return files_of_state(read_checkpoint(job, configuration).metadata) >= FILES_CHAINED
    return False


def counts_after(rows: int) -> dict[int, int]:
    """Return the count of each key after so many rows."""
    return dict(Counter(map(key_of, range(rows))))


def last_after(rows: int) -> dict[int, list[int]]:
    """Return the numbers of the last two rows of each key after so many rows."""
    last: dict[int, list[int]] = {}
    for row in range(rows):
        last[key_of(row)] = [*last.get(key_of(row), [])[-1:], row]
    return last


def lines_after(rows: int) -> Counter[str]:
    """Return what the job has written after so many rows."""
    return Counter(f"{key}:{n}" for key, count in counts_after(rows).items() for n in range(1, count + 1))
