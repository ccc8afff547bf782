"""What a source, split enumerator, reader, sink, writer and committer are.

A source's splits are handed out by an enumerator in the JobMaster and read by readers in the slots. A split is
bytes (JSON, so that it can be read in a checkpoint's metadata), and says where in it to go on. Besides, it has an id,
a string that stays the same wherever it is read and however far: event time is generated per split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.failures import Fault
from penstock.common.typeinfo import TypeInformation


class PermanentError(Exception):
    """Mixed into an error that no restart can mend: the job fails at once, whatever its restart strategy says."""


class SourceError(Fault):
    """Input that cannot be read. The message names file, row or split, and the way out."""


class SourceChanged(SourceError, PermanentError):
    """Raised when the input is not what the job or its checkpoint began to read."""


class SplitEnumerator(ABC):
    """Lives in the JobMaster; every method is called by its one thread and returns at once."""

    @abstractmethod
    def next_splits(self, subtask: int) -> list[bytes] | None:
        """What to read next; [] when there is nothing now (ask again later), None when there never will be."""

    @abstractmethod
    def return_splits(self, splits: list[bytes]) -> None:
        """Splits (with positions) that a restored job's readers do not hold any more. They are handed out again."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """What `Source.create_enumerator(restored=...)` continues from: the splits not handed out yet."""


@dataclass(frozen=True)
class NotReady:
    """Nothing to read now; call again after `wait_ms`. `wait_ms` None: after splits have been added."""

    wait_ms: float | None


class SourceReader(ABC):
    """Lives in a slot, in its subtask's thread. Must not block longer than reading its input takes."""

    skipped_rows: int = 0
    """How many rows of the input this reader has left out because they could not be read, where the source says so."""

    @abstractmethod
    def add_splits(self, splits: list[bytes]) -> None: ...

    @abstractmethod
    def no_more_splits(self) -> None: ...

    @abstractmethod
    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        """The next rows, 1 to `rows_max` of them; None at the end of all input, which is only after
        `no_more_splits()`. With `NotReady(None)` the runtime asks the enumerator for splits; no rows come before
        some have been added, so none are half way through when they are. All rows of a batch are of one split."""

    @property
    def current_split(self) -> str:
        """The id of the split that the rows last returned by `read` came from. An id is the same before and after a
        restore, and no two splits of a source share one. A source that knows no splits has one, ""."""
        return ""

    def splits_in_hand(self) -> list[str]:
        """The ids of the splits that `snapshot` would return: begun, or not yet."""
        return [""]

    def queued_splits(self) -> list[str]:
        """Return the ids of splits in hand that have more rows and wait for others to be read: they are not idle,
        however long they wait. A reader that asks all its splits for rows returns [], and one that comes to an end of
        one before it begins the next returns all but the first."""
        return []

    def finished_splits(self) -> list[str]:
        """The ids of the splits that were read to their ends since this was last called: no row of them will come,
        the one last returned by `read` may be their last. Splits without a row are among them. A source that does not
        tell returns [], and its splits end with its input."""
        return []

    def take_rejected(self) -> pa.RecordBatch | None:
        """Rows of the input that could not be read since this was last called, in the columns of
        `Source.rejected_type`, for the side output `Source.rejected_tag_id`; None when there are none. The positions
        of `snapshot` lie behind them, so they are taken after every `read`, whatever it returned, and sent before a
        barrier."""
        return None

    @abstractmethod
    def snapshot(self) -> list[bytes]:
        """The splits in hand, with positions behind the last row that `read` returned (not the last read ahead)."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class ReaderContext:
    subtask: int
    parallelism: int
    operator_name: str


class Source(ABC):
    """Pickled by value or reference and shipped. Checks what can be known when it is built, before the job starts."""

    bounded: bool = True

    @property
    def rejected_tag_id(self) -> str | None:
        """The id of the side output that rows which cannot be read go to; None: there is none."""
        return None

    @property
    def rejected_type(self) -> TypeInformation | None:
        """The type of the rows of that side output; None where there is none."""
        return None

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation | None:
        """None: the stream's type is given by `from_source(..., type_info=...)`, else rows are pickles."""

    def validate(self) -> None:
        """Called on the driver before the job starts. Raises `SourceError`."""

    @abstractmethod
    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator: ...

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader: ...


class SinkError(Fault):
    """Output that cannot be written. The message names the file and the way out."""


class OutputGone(SinkError, PermanentError):
    """Raised when output that is to be committed was removed or changed from outside."""


@dataclass(frozen=True)
class WriterContext:
    """`incarnation` differs for every generation of every driver: part of the names of pending files.

    `emit` takes a list of lines without line ends, for the driver's terminal (print sink); `checkpointing` tells
    whether commits will come with checkpoints or only once at the end. `generation` is (fence, counter), which grows
    with every attempt of the job `job_id`; `job_id` is "" where no fence in a log keeps an older driver of the same
    job from publishing (then nothing that an older attempt left behind is ever removed).
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


class SinkWriter(ABC):
    """Lives in a slot, in its subtask's thread."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Rows in the columns of the input type, or (untyped) one binary column of pickles."""

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        """Everything written since the last call becomes committables: durable now, visible after the commit."""
        return []

    def snapshot(self) -> list[bytes]:
        """Small state to restore from, after `prepare_commit`."""
        return []

    def finish(self) -> None:
        """No more rows will come; commits may still."""

    def close(self) -> None: ...


class Committer(ABC):
    """Lives in the JobMaster; called in log order. A commit may be repeated any number of times."""

    @abstractmethod
    def commit(self, committables: list[bytes]) -> None: ...


class Sink(ABC):
    def validate(self, input_type: TypeInformation | None) -> None:
        """Called on the driver before the job starts. Raises `SinkError`."""

    @abstractmethod
    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter: ...

    def create_committer(self) -> Committer | None:
        return None
