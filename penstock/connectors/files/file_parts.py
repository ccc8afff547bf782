"""Names part files by the states of their life.

    in progress  .<owner>-<subtask>of<parallelism>-g<fence>.<counter>-<incarnation>-<number>.inprogress
    pending      the same, ending in .pending: durable, and awaits its commit
    visible      <prefix>-<uid>-<subtask>-<checkpoint>-<number>-<incarnation><suffix>

A part that outlives a checkpoint is known by its name in progress, which stays as a second link while it is pending.
After a restart no writer appends to it: a writer of the old generation, which may not have ended, might do the same.
Its bytes up to the checkpoint are copied to a part of the new generation. If the part has become visible since (an
older checkpoint is restored), they are found under its final name.

In a directory of a file system (`local_parts`; for stores see `stored_parts`) all three lie in the sink's directory, or
the last in a bucket below it, so that each step is one atomic rename.
Readers such as Spark leave out names that begin with a dot. The final name is fixed when the part becomes pending, and
is in the committable, so that a commit can be repeated: pending gone and final there means that it was done.

What a killed attempt leaves behind is removed by the writers of later generations of the same job, by these rules:

- Only files of the same owner (a hash of job id and operator uid) and of an older generation are touched. An older
  generation has been revoked: whatever it still does is refused, so none of its files can newly become part of a
  checkpoint. A writer of an old generation that wakes up late removes nothing of a younger one.
- A writer's state names the files in progress that are in the checkpoint, and how many of their bytes. Whatever the
  sink's settings are now, these stay until a later checkpoint holds their rows. The state of old subtask s goes to the
  new subtask s modulo the parallelism, so that one removes all other files in progress of s.
- A pending file is in a checkpoint, or was prepared for one that never was. A writer's state names those that its
  predecessor had prepared and not yet seen committed. The newest checkpoint of a job is what its newest generation
  starts from, so pending files of that predecessor which its state does not name are in no checkpoint: they are
  removed. Without such a state, or at another parallelism, pending files stay.
- A job that is started from another job's checkpoint has an id of its own, and touches nothing of the other's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.connectors.base import SinkError, WriterContext
from penstock.storage.store import StoreError

_HIDDEN_NAME = re.compile(r"\.([0-9a-f]{24})-(\d+)of(\d+)-g(-?\d+)\.(-?\d+)-.+-\d+\.(inprogress|pending)")

_PART_NAME = re.compile(r"\.[0-9a-f]{24}-(\d+)of\d+-g-?\d+\.-?\d+-(.+)-(\d+)\.inprogress")
"""(subtask, incarnation, number)"""

OF_A_SAVEPOINT = (
    "If this is a savepoint, its job may have restarted before its next checkpoint: then it has removed these rows "
    "and written them again. Start from that job's newest checkpoint, or from another savepoint."
)
DIRECTORY_WAY_OUT = (
    "The directory of a file sink must exist, be writable and have space, on the driver and in every slot."
)


@dataclass(frozen=True)
class PartNames:
    """Makes the names of the parts of a writer."""

    context: WriterContext
    prefix: str
    suffix: str

    @property
    def owner(self) -> str:
        """Return the hash of job and operator that all hidden files of a sink begin with."""
        identity = json.dumps([self.context.job_id, self.context.operator_uid])
        return hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()

    def in_progress(self, number: int) -> str:
        """Return the name of a part that is being written.

        Args:
            number: The number of the part.

        Returns:
            The name.
        """
        c = self.context
        fence, counter = c.generation
        return f".{self.owner}-{c.subtask}of{c.parallelism}-g{fence}.{counter}-{self._incarnation}-{number}.inprogress"

    def pending(self, number: int) -> str:
        """Return the name of a part that waits for its commit.

        Args:
            number: The number of the part.

        Returns:
            The name.
        """
        return self.in_progress(number).removesuffix(".inprogress") + ".pending"

    def final(self, number: int, checkpoint_id: int, other_suffix: str | None = None) -> str:
        """Return the name of a part that is visible.

        Args:
            number: The number of the part.
            checkpoint_id: The checkpoint that it was prepared for.
            other_suffix: The suffix, if it is not that of this writer.

        Returns:
            The name.
        """
        c = self.context
        suffix = self.suffix if other_suffix is None else other_suffix
        return (
            f"{self.prefix}-{c.operator_uid[:8]}-{c.subtask}-{checkpoint_id:06}-{number:04}-{self._incarnation}{suffix}"
        )

    def owns(self, name: str) -> bool:
        """Return True if a hidden file is one of this job's and operator's.

        Args:
            name: The name of the file.

        Returns:
            True or False.
        """
        match = _HIDDEN_NAME.fullmatch(name)
        return match is not None and match[1] == self.owner

    @property
    def _incarnation(self) -> str:
        return re.sub(r"[^A-Za-z0-9]+", "_", self.context.incarnation)


@dataclass(frozen=True)
class FileCommittable:
    """Describes a durable file of `size` bytes that is to be renamed from `pending` to `final`, both in `directory`.

    `final` may lie in a bucket, a directory below it, which the commit makes.
    """

    directory: str
    pending: str
    final: str
    size: int
    superseded: tuple[str, ...] = ()
    """Names of hidden files whose rows are in this one, removed after the commit; paths if they are elsewhere."""

    def encode(self) -> bytes:
        """Encode the committable as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> FileCommittable:
        """Decode the result of `encode`.

        Args:
            data: The bytes.

        Returns:
            The committable.
        """
        fields = json.loads(data)
        return FileCommittable(**{**fields, "superseded": tuple(fields.get("superseded", ()))})

    @property
    def pending_path(self) -> str:
        """Return the path of the pending file."""
        return os.path.join(self.directory, self.pending)

    @property
    def final_path(self) -> str:
        """Return the path of the visible file."""
        return os.path.join(self.directory, self.final)

    @property
    def directories(self) -> list[str]:
        """Return the sink's directory, and those below it that lead to the final name."""
        found = [self.directory]
        for name in self.final.split("/")[:-1]:
            found.append(os.path.join(found[-1], name))
        return found


def leftovers(
    found: Iterable[str], names: PartNames, predecessors: set[tuple[int, int]] | None, kept: Set[str]
) -> list[str]:
    """Choose the leftovers of older generations (see the rules above).

    Args:
        found: Names of hidden files in the sink's directory.
        names: The names of this writer's parts.
        predecessors: (subtask, parallelism) of the writers whose state this writer was restored from. None: `kept` has
            all pending files that are in a checkpoint.
        kept: Names of files that are in the checkpoint.

    Returns:
        The names of the files that are to be removed.
    """
    context = names.context
    chosen = []
    for name in found:
        match = _HIDDEN_NAME.fullmatch(name)
        if not context.job_id or match is None or match[1] != names.owner or name in kept:
            continue
        subtask, parallelism = int(match[2]), int(match[3])
        if (int(match[4]), int(match[5])) >= tuple(context.generation):
            continue
        if match[6] == "inprogress" or predecessors is None:
            is_leftover = subtask % context.parallelism == context.subtask
        else:
            is_leftover = (subtask, parallelism) in predecessors
        if is_leftover:
            chosen.append(name)
    return chosen


def pattern_of_final(name: str, operator_uid: str, suffix: str) -> re.Pattern[str] | None:
    """Return the pattern of a part's visible name, whatever its checkpoint.

    Args:
        name: The part's name in progress.
        operator_uid: The uid of the sink.
        suffix: What visible files of the part's writer end in.

    Returns:
        The pattern; None if `name` is no name of a part.
    """
    match = _PART_NAME.fullmatch(name)
    if match is None:
        return None
    begin = rf".+-{re.escape(operator_uid[:8])}-{match[1]}-\d{{6,}}-{int(match[3]):04}-{re.escape(match[2])}"
    return re.compile(begin + re.escape(suffix))


@contextlib.contextmanager
def naming(path: str, done: str, way_out: str = DIRECTORY_WAY_OUT) -> Iterator[None]:
    """Turn an error of the file system, of a store or of a format into a `SinkError` that names the file.

    Args:
        path: The file.
        done: What cannot be done with it, for the message: "written".
        way_out: What to do, where it is an error of the file system or of a format.

    Yields:
        Nothing: a context manager.

    Raises:
        SinkError: The body raised such an error.
    """
    try:
        yield
    except StoreError as error:
        raise SinkError(str(error)) from error
    except (OSError, pa.ArrowException) as error:
        cause = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        raise SinkError(f"{path} cannot be {done}: {cause}. {way_out}") from error
