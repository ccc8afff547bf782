"""Names part files by the states of their life.

    in progress  .<owner>-<subtask>of<parallelism>-g<fence>.<counter>-<incarnation>-<number>.inprogress
    pending      the same, ending in .pending: durable, and awaits its commit
    visible      <prefix>-<uid>-<subtask>-<checkpoint>-<number>-<incarnation><suffix>

A part that outlives a checkpoint is known by its name in progress, which stays as a second link while it is pending.
After a restart no writer appends to it: a writer of the old generation, which may not have ended, might do the same.
Its bytes up to the checkpoint are copied to a part of the new generation. If the part has become visible since (an
older checkpoint is restored), they are found under its final name.

All three lie in the sink's directory, or the last in a bucket below it, so that each step is one atomic rename.
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
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.datastream.connectors.base import Committer, OutputGone, SinkError, WriterContext

_HIDDEN_NAME = re.compile(r"\.([0-9a-f]{24})-(\d+)of(\d+)-g(-?\d+)\.(-?\d+)-.+-\d+\.(inprogress|pending)")

_PART_NAME = re.compile(r"\.[0-9a-f]{24}-(\d+)of\d+-g-?\d+\.-?\d+-(.+)-(\d+)\.inprogress")
"""(subtask, incarnation, number)"""


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
        """Decode what `encode` returned.

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


class FileCommitter(Committer):
    """Makes pending files visible. Every call may be repeated, and may be cut off anywhere."""

    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        parts = [FileCommittable.decode(data) for data in committables]
        for part in parts:
            with naming(part.final_path, "committed"):
                _commit(part)
                for name in part.superseded:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(part.directory, name))
        for directory in sorted({directory for part in parts for directory in part.directories}, reverse=True):
            with naming(directory, "synchronized"):
                synchronize_directory(directory)


def _commit(part: FileCommittable) -> None:
    if _is_committed(part):
        return
    pending_size = _size(part.pending_path)
    if pending_size is not None and pending_size != part.size:
        raise OutputGone(
            f"{part.pending_path} has {pending_size} bytes, but {part.size} were written for its checkpoint: it was "
            f"changed from outside, so it does not become {part.final}. Restore the file, or start from another "
            "checkpoint."
        )
    if pending_size is not None and len(part.directories) > 1:
        os.makedirs(part.directories[-1], exist_ok=True)
    try:
        os.rename(part.pending_path, part.final_path)
    except FileNotFoundError:
        # Another committer of the same checkpoint may just have done it.
        if not _is_committed(part):
            # A directory that is not there may be a file system that is not mounted just now.
            gone = OutputGone if os.path.isdir(part.directory) else SinkError
            raise gone(
                f"rows of a completed checkpoint are lost: neither {part.pending_path}, which held them, nor "
                f"{part.final_path}, which it was to become, exists. Were files removed from {part.directory}, or is "
                "it not shared by all machines? If the rows have been taken from there on purpose, put an empty file "
                f"of {part.size} bytes in the final file's place (truncate -s) and remove it afterwards."
            )


def _is_committed(part: FileCommittable) -> bool:
    size = _size(part.final_path)
    if size is None:
        return False
    if size != part.size:
        raise OutputGone(
            f"{part.final_path} has {size} bytes, but {part.size} were written for its checkpoint: it was changed "
            "from outside. Move it away if its rows are not needed, or start from another checkpoint."
        )
    return True


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def remove_leftovers(directory: str, names: PartNames, predecessors: set[tuple[int, int]], kept: Set[str]) -> None:
    """Remove what older generations left behind (see the rules above).

    Args:
        directory: The sink's directory.
        names: The names of this writer's parts.
        predecessors: (subtask, parallelism) of the writers whose state this writer was restored from.
        kept: Names of the files that those states name.
    """
    context = names.context
    if not context.job_id:
        return
    for name in os.listdir(directory):
        match = _HIDDEN_NAME.fullmatch(name)
        if match is None or match[1] != names.owner or name in kept:
            continue
        subtask, parallelism = int(match[2]), int(match[3])
        if (int(match[4]), int(match[5])) >= tuple(context.generation):
            continue
        if match[6] == "inprogress":
            is_leftover = subtask % context.parallelism == context.subtask
        else:
            is_leftover = (subtask, parallelism) in predecessors
        if is_leftover:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))


def find_part(directories: list[str], name: str, bucket: str, operator_uid: str, suffix: str) -> str:
    """Find the file that has the bytes of a part in progress now: it may have become pending, or visible, since.

    Args:
        directories: The sink's directory, then the one that it had when the part was written.
        name: The part's name in progress.
        bucket: The bucket that the part belongs to.
        operator_uid: The uid of the sink.
        suffix: What visible files of the part's writer end in.

    Returns:
        The path of the file.

    Raises:
        OutputGone: There is no such file.
    """
    pending = name.removesuffix(".inprogress") + ".pending"
    match = _PART_NAME.fullmatch(name)
    for directory in dict.fromkeys(directories):
        for path in (os.path.join(directory, name), os.path.join(directory, pending)):
            if os.path.exists(path):
                return path
        folder = os.path.join(directory, bucket)
        if match is not None and os.path.isdir(folder):
            begin = rf".+-{re.escape(operator_uid[:8])}-{match[1]}-\d{{6,}}-{int(match[3]):04}-{re.escape(match[2])}"
            final = re.compile(begin + re.escape(suffix))
            found = [entry for entry in os.listdir(folder) if final.fullmatch(entry)]
            if len(found) == 1:
                return os.path.join(folder, found[0])
    raise OutputGone(
        f"rows of a completed checkpoint are lost: {os.path.join(directories[-1], name)}, which holds them, does not "
        "exist, and neither does the file that it has become. Was it removed, or taken away by a loader? Put it back, "
        "or start from a newer checkpoint."
    )


def synchronize_directory(path: str) -> None:
    """Make the names in a directory durable.

    Args:
        path: The directory.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: str, done: str) -> Iterator[None]:
    """Turn an error of the file system or of a format into a `SinkError` that names the file.

    Args:
        path: The file.
        done: What cannot be done with it, for the message: "written".

    Yields:
        Nothing: a context manager.

    Raises:
        SinkError: The body raised such an error.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        cause = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        raise SinkError(
            f"{path} cannot be {done}: {cause}. The directory of a file sink must exist, be writable and have space, "
            "on the driver and in every slot."
        ) from error
