"""Defines the interfaces of sources, their split enumerators and their readers.

An enumerator in the JobMaster hands out a source's splits, and readers in the slots read them. A split is bytes (JSON,
so that it can be read in a checkpoint's metadata) and contains the position to continue at. It also has an id, a string
that stays the same wherever and however far it is read: event time is generated per split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.metrics import MetricGroup
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base.connector_errors import MalformedRecord


class SplitEnumerator(ABC):
    """Hands out the splits of a source.

    It lives in the JobMaster. Its methods are called by one thread and return at once, except `discover` and
    `checkpoint_completed`: these may block, and are called by another thread, one after the other.
    """

    discovers: bool = False
    """True if `discover` is to be called: once at the start of each generation, then every `discovery_interval_ms`."""

    discovery_interval_ms: float | None = None
    """Sets how long after a call of `discover` the next one begins, in milliseconds; None: there is no next one."""

    discovery_number: int = 0
    """Counts what there has been to discover. When it changes, `discover` is called at once, as at the start of a
    generation."""

    wants_checkpoints: bool = False
    """True if `checkpoint_completed` is to be called."""

    is_processing_backlog: bool = False
    """True while the source reads what had been there before, and `interval-during-backlog` is to count."""

    @abstractmethod
    def next_splits(self, subtask: int) -> list[bytes] | None:
        """Return splits for a reader that has none.

        Args:
            subtask: The reader's subtask.

        Returns:
            Splits; [] if there are none now (ask again later); None if there will be no more.
        """

    @abstractmethod
    def return_splits(self, splits: list[bytes]) -> None:
        """Take back splits that readers of a restored job do not hold any more, to hand them out again.

        Args:
            splits: The splits, with positions.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """Return the splits that were not handed out yet, for `Source.create_enumerator(restored=...)`."""

    def discover(self) -> Any:
        """Look for splits outside the job. May block, and must not change the enumerator.

        Returns:
            What was found, for `on_discovered`. An exception fails the job over.
        """
        return None

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        """Handle the result of `discover`.

        Args:
            found: What `discover` returned.

        Returns:
            Splits to hand out now, by the reader's subtask. A reader gets them although it has others.
        """
        return {}

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        """Report the positions of a completed checkpoint outside the job. May block.

        A checkpoint that completes while an older one is reported may be left out. An exception becomes a warning.

        Args:
            splits: What all readers' `snapshot` returned for the checkpoint.
        """


@dataclass(frozen=True)
class NotReady:
    """Says that there is nothing to read now. Call again after `wait_ms`; None: after splits have been added."""

    wait_ms: float | None


class SourceReader(ABC):
    """Reads splits. It lives in a slot, in its subtask's thread, and blocks no longer than reading takes."""

    skipped_rows: int = 0
    """The number of rows of the input that this reader has left out because they could not be read, where the source
    says so."""

    lag_rows: int | None = None
    """The number of rows of its splits that this reader has not read yet; None if the source does not know. Read by any
    thread."""

    waits_for_others: bool = False
    """True while this reader gets no splits until other readers of the source have read theirs. Sources that are
    aligned with it in event time do not wait for it then."""

    @abstractmethod
    def add_splits(self, splits: list[bytes]) -> None:
        """Add splits to read. A split begins at the position that it contains.

        Args:
            splits: The splits, as the enumerator or `snapshot` returned them.
        """

    @abstractmethod
    def no_more_splits(self) -> None:
        """Expect no more splits: `read` returns None when the present ones are read."""

    @abstractmethod
    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        """Return the next rows. All rows of a batch are of one split.

        With `NotReady(None)` the runtime asks the enumerator for splits; no rows come before some have been added, so
        none are half way through when they are.

        Args:
            rows_max: The largest number of rows.

        Returns:
            1 to `rows_max` rows (more only if one record of the input is several); `NotReady` if there are none now;
            None at the end of all input, after `no_more_splits()`.
        """

    @property
    def current_split(self) -> str:
        """Return the id of the split that the rows last returned by `read` came from.

        An id is the same before and after a restore, and unique in the source. A source without splits has one, "".
        """
        return ""

    def splits_in_hand(self) -> list[str]:
        """Return the ids of the splits that `snapshot` would return, begun or not."""
        return [""]

    def queued_splits(self) -> list[str]:
        """Return the ids of splits in hand that have more rows and wait for others to be read.

        They are not idle, however long they wait. A reader that asks all its splits for rows returns []; one that reads
        a split to its end before it begins the next returns all but the first.
        """
        return []

    def finished_splits(self) -> list[str]:
        """Return the ids of the splits that were read to their ends since the last call.

        No row of them will come; the row last returned by `read` may be their last. Splits without a row are among
        them. A source that does not report ends returns [], and its splits end with its input.
        """
        return []

    def take_rejected(self) -> pa.RecordBatch | None:
        """Return rows of the input that could not be read since the last call.

        They are for the side output `Source.rejected_tag_id`, in the columns of `Source.rejected_type`; None if there
        are none. The positions of `snapshot` lie behind them, so the runtime takes them after every `read`, whatever it
        returned, and sends them before a barrier.
        """
        return None

    def place_of(self, row: int) -> str:
        """Return the place in the input of a row of the batch that `read` returned last, for an error.

        Args:
            row: The index of the row in the batch.

        Returns:
            The place, such as "topic 'orders', partition 0, offset 12". The default names the split.
        """
        return f"split {self.current_split!r}" if self.current_split else "a row of the source"

    def refuse(self, refused: Mapping[int, str]) -> Collection[int]:
        """Refuse rows of the batch that `read` returned last: their event time cannot be read.

        They are malformed records like others: a source that can leave such records out, or emit them to its side
        output (`take_rejected`), does so. The default raises.

        Args:
            refused: The reasons, by the index of the row in the batch.

        Returns:
            The rows to leave out: those, and others that the same records have become.

        Raises:
            MalformedRecord: The source fails at malformed records.
        """
        row, reason = min(refused.items())
        raise MalformedRecord(f"{self.place_of(row)}: {reason}. Correct the row, or the timestamps of the strategy")

    @abstractmethod
    def snapshot(self) -> list[bytes]:
        """Return the splits in hand, with positions behind the last row that `read` returned.

        Rows that were read ahead lie behind the positions.
        """

    def close(self) -> None:
        """Release files and connections. Called at the end and after a failure."""


@dataclass(frozen=True)
class ReaderContext:
    """Describes the subtask that a reader is made for: its index, the parallelism, the operator's name.

    `metrics` makes the metrics of the reader; None where nobody reads them.
    """

    subtask: int
    parallelism: int
    operator_name: str
    metrics: MetricGroup | None = None


class Source(ABC):
    """Describes an input: its type, its splits and how they are read.

    It is pickled and shipped to the slots. What can be checked without the job is checked when it is built.
    """

    bounded: bool = True

    has_timestamps: bool = False
    """True if each batch has a column `__timestamp__` of event times, in milliseconds since the epoch."""

    @property
    def rejected_tag_id(self) -> str | None:
        """Return the id of the side output for rows that cannot be read; None if there is no such side output."""
        return None

    @property
    def rejected_type(self) -> TypeInformation | None:
        """Return the type of the rows of that side output; None if there is no such side output."""
        return None

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation | None:
        """Return the type of the rows; None if `from_source(..., type_info=...)` declares it, else rows are pickles."""

    def describe(self) -> dict[str, str]:
        """Return the source's description for plans, reports and the dashboard, without secrets. The default is {}."""
        return {}

    def configure(self, configuration: Configuration) -> None:
        """Read the job's options that the source needs. Called on the driver, before everything else.

        Args:
            configuration: The options.
        """

    def validate(self) -> None:
        """Check the settings that can be checked before the job starts. Called on the driver; raises `SourceError`."""

    def copy_files(self, snapshot: bytes, directory: str, progress: Callable[[], None]) -> list[str]:
        """Copy this source's files in the job's directory to a savepoint, which must not need that directory.

        A copy that fails leaves nothing behind.

        Args:
            snapshot: What the enumerator's `snapshot` returned for the savepoint.
            directory: The savepoint's directory.
            progress: To be called, by any thread, whenever some of the data has been copied: a savepoint that shows no
                progress for `execution.checkpointing.timeout` is given up. It raises if the savepoint has been given
                up; let that pass.

        Returns:
            The copies: paths relative to `directory`. They are deleted if the savepoint fails later.
        """
        return []

    @abstractmethod
    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        """Make the enumerator of a job. Called on the driver.

        Args:
            parallelism: The number of readers.
            restored: What the enumerator's `snapshot` returned; None at the start of a new job.

        Returns:
            The enumerator.
        """

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader:
        """Make the reader of a subtask. Called in its slot.

        Args:
            context: Describes the subtask.

        Returns:
            The reader.
        """
