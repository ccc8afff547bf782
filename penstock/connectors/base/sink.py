"""Defines the interfaces of sinks, their writers and their committers.

Writers in the slots write rows and prepare output for each checkpoint. The committer, in the JobMaster, makes prepared
output visible once its checkpoint has completed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.metrics import MetricGroup
from penstock.common.typeinfo import TypeInformation


@dataclass(frozen=True)
class WriterContext:
    """Describes the subtask that a writer is made for.

    `incarnation` differs for every generation of every driver and is part of the names of pending files. `emit` takes a
    list of lines without line ends, for the driver's terminal. `checkpointing` is True if commits come with
    checkpoints, False if only once at the end.

    `generation` is (fence, counter), which grows with every attempt of the job `job_id`. `job_id` is "" if no fence in
    a log keeps an older driver of the same job from publishing; then nothing that an older attempt left behind is
    removed.

    `pending` are the committables of all subtasks that the restored checkpoint names. The committer commits them, and
    may not have done so yet. `concurrent_checkpoints` is how many checkpoints may be in progress at a time.
    """

    subtask: int
    parallelism: int
    operator_name: str
    operator_uid: str
    incarnation: str
    checkpointing: bool
    input_type: TypeInformation | None
    emit: Any
    job_id: str = ""
    generation: tuple[int, int] = (0, 0)
    pending: tuple[bytes, ...] = ()
    concurrent_checkpoints: int = 1
    metrics: MetricGroup | None = None
    """Makes the metrics of the writer; None where nobody reads them."""


class SinkWriter(ABC):
    """Writes rows. It lives in a slot, in its subtask's thread."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. They become visible with the commit of a later checkpoint.

        Args:
            batch: The rows, in the columns of the input type; without a type, one binary column of pickles.
        """

    def before_stop(self) -> None:
        """Expect that the next `prepare_commit` belongs to the savepoint that the job stops with.

        A writer that keeps output open over checkpoints finishes it now: nobody may ever continue it. If the savepoint
        fails, the job continues, and rows may follow. The default does nothing.
        """

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        """Make everything durable that was written since the last call.

        Args:
            checkpoint_id: The checkpoint.

        Returns:
            Committables: what a committer needs to make it visible. The default is [].
        """
        return []

    def snapshot(self) -> list[bytes]:
        """Return small state to restore from. Called after `prepare_commit`. The default is []."""
        return []

    def commits_confirmed(self, checkpoint_id: int) -> None:
        """Note that output is committed for good: a newer checkpoint has completed that does not name it any more.

        No restore commits this output again. What a restored checkpoint names is confirmed by the same call.

        Args:
            checkpoint_id: All that `prepare_commit` has returned for this checkpoint, and for earlier ones, is meant.
        """

    def finish(self) -> None:
        """End writing: no more rows will come; commits may still."""

    def close(self) -> None:
        """Release files and connections. Called at the end and after a failure."""


class Committer(ABC):
    """Makes prepared output visible. It lives in the JobMaster and is called in the order of the log."""

    @abstractmethod
    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        """Make committables visible. A commit may be repeated any number of times, after a crash in the middle, too.

        A restore repeats the commits of the restored checkpoint, and of earlier ones that it names as unconfirmed, in
        their order and with their ids. No other commit is repeated.

        Args:
            checkpoint_id: The completed checkpoint that named them first.
            committables: What all writers of the sink returned for it, and for earlier ones that were given up.
        """


class DeliveryGuarantee(Enum):
    """Chooses the guarantee for rows after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class Sink(ABC):
    """Describes an output: how rows are written, and how they become visible."""

    def describe(self) -> dict[str, str]:
        """Return the sink's description for plans, reports and the dashboard, without secrets. The default is {}."""
        return {}

    def configure(self, configuration: Configuration) -> None:
        """Read the job's options that the sink needs. Called on the driver, before everything else.

        Args:
            configuration: The options.
        """

    def validate(self, input_type: TypeInformation | None) -> None:
        """Check the settings that can be checked before the job starts. Called on the driver; raises `SinkError`.

        Args:
            input_type: The type of the rows; None: they are pickles.
        """

    @abstractmethod
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        """Make the writer of a subtask. Called in its slot.

        Args:
            context: Describes the subtask.
            restored: What the `snapshot` of earlier writers returned; [] at the start of a new job.

        Returns:
            The writer.
        """

    def create_committer(self) -> Committer | None:
        """Return the committer, or None if the sink needs no commits. Called on the driver."""
        return None
