"""Declares the operations of a file sink on its directory, in a file system or a store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from typing import BinaryIO

from penstock.connectors.base import RefusedRecord
from penstock.connectors.files.file_parts import DIRECTORY_WAY_OUT, FileCommittable, PartNames

_NAME_BYTES_MAX = 255


class PartDirectory(ABC):
    """Represents the directory of a file sink. `place` is its path, or the URI of a store.

    A writer writes a part to the local file `path(name)`. From there the directory makes it durable: under its name in
    progress (`keep`) or as a pending file (`make_pending`). That may take until `settle` returns.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    @property
    def way_out(self) -> str:
        """Return the advice for a local file that cannot be written."""
        return DIRECTORY_WAY_OUT

    @abstractmethod
    def probe(self) -> None:
        """Make the directory, and check that files can be written to it. Raises `OSError` and `StoreError`."""

    @abstractmethod
    def prepare(self, names: PartNames, predecessors: set[tuple[int, int]], kept: Set[str]) -> None:
        """Make the directory, and remove what older generations left behind in it.

        Args:
            names: The names of the writer's parts.
            predecessors: (subtask, parallelism) of the writers whose state the writer was restored from.
            kept: Names of the files that those states name.
        """

    @abstractmethod
    def path(self, name: str) -> str:
        """Choose the local path of a part.

        Args:
            name: Its name in progress.

        Returns:
            The path.

        Raises:
            SinkError: There is no place for it on this machine.
        """

    def check_bucket(self, bucket: str) -> None:
        """Check that a bucket can be a directory: the commit makes it, when it would be too late to refuse it.

        Args:
            bucket: Its path, relative to this directory.

        Raises:
            RefusedRecord: It cannot be one.
        """
        for name in bucket.split("/"):
            if len(os.fsencode(name)) > _NAME_BYTES_MAX:
                raise RefusedRecord(
                    f"{name[:100]}... is no name of a directory in {self.place}: it has {len(os.fsencode(name))} "
                    f"bytes, and {_NAME_BYTES_MAX} is the most. Make buckets of a column with shorter values."
                )

    @abstractmethod
    def flush(self, file: BinaryIO) -> int:
        """Write a part's buffered bytes to its local path.

        Args:
            file: The part.

        Returns:
            Its size in bytes.
        """

    @abstractmethod
    def keep(self, name: str, size: int) -> None:
        """Make the beginning of a part durable under its name in progress.

        Args:
            name: The name.
            size: How many bytes of the part. Never fewer than in the last call.
        """

    def send_ahead(self, name: str, pending: str) -> None:
        """Begin to make a finished part a pending file, if that takes long: `make_pending` follows.

        Args:
            name: Its name in progress.
            pending: Its name when it is pending.
        """

    @abstractmethod
    def make_pending(self, name: str, pending: str, keeps_name: bool) -> None:
        """Make a finished part a pending file.

        Args:
            name: Its name in progress.
            pending: Its new name.
            keeps_name: True: what `keep` has made durable stays.
        """

    @abstractmethod
    def settle(self, has_new_names: bool) -> None:
        """Wait until all that was asked for is durable.

        Args:
            has_new_names: True if files have been made or renamed since the last call.
        """

    @abstractmethod
    def still_pending(self, paths: list[str]) -> list[str]:
        """Leave out pending files that are known to be committed, and those that are found without a writer's state.

        Args:
            paths: Paths of pending files.

        Returns:
            The paths that have to be in the writer's state.
        """

    def release(self, names: Sequence[str]) -> None:
        """Note that the rows of some parts are in another part now.

        Args:
            names: Their names in progress.
        """

    @abstractmethod
    def read_part(self, name: str, bucket: str, size: int, operator_uid: str, suffix: str, file: BinaryIO) -> bool:
        """Copy the first bytes of a part of the checkpoint, which may have become pending, or visible, since.

        Args:
            name: The part's name in progress.
            bucket: The bucket that the part belongs to.
            size: How many bytes.
            operator_uid: The uid of the sink.
            suffix: What visible files of the part's writer end in.
            file: Where the bytes are written to.

        Returns:
            False if there is no such part here.

        Raises:
            OutputGone: It has fewer bytes.
        """

    @abstractmethod
    def close(self, left: Sequence[str]) -> None:
        """Release everything. Never raises.

        Args:
            left: Names in progress of parts that no checkpoint names.
        """

    @abstractmethod
    def commit(self, parts: Sequence[FileCommittable]) -> None:
        """Make pending files of this directory visible; those that are visible already are left as they are.

        Args:
            parts: The files.

        Raises:
            OutputGone: A file is neither pending nor visible, or has another size.
        """

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None:
        """Remove the durable objects under names in progress, if there are any.

        Args:
            names: The names.
        """
