"""Defines the storage of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions as Options


class CheckpointStorage:
    """Describes the storage of checkpoints."""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this storage.

        Args:
            configuration: The configuration to change.

        Raises:
            NotImplementedError: This is the base class.
        """
        raise NotImplementedError


class JobManagerCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in the driver's memory; they are lost with the driver. For tests."""

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        if checkpoint_path is not None:
            raise ValueError(
                "JobManagerCheckpointStorage keeps everything in memory and takes no path; for a "
                "directory use FileSystemCheckpointStorage(path)"
            )
        self._max_state_size_bytes = max_state_size

    def get_checkpoint_path(self) -> str | None:
        """Return None: checkpoints have no directory."""
        return None

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go to the directory that is named for them."""
        return None

    def get_max_state_size(self) -> int:
        """Return the size of the largest object that the storage takes, in bytes."""
        return self._max_state_size_bytes or self.DEFAULT_MAX_STATE_SIZE

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(Options.CHECKPOINT_STORAGE, "jobmanager")
        if self._max_state_size_bytes is not None:
            configuration.set(Options.JOBMANAGER_STORAGE_MAX_SIZE, self._max_state_size_bytes)


class FileSystemCheckpointStorage(CheckpointStorage):
    """Writes checkpoints to files below `checkpoint_path`, a local path or file:// URI that all slots see."""

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(self, checkpoint_path: str | Path) -> None:
        if not str(checkpoint_path):
            raise ValueError("FileSystemCheckpointStorage needs a directory")
        self._checkpoint_path = str(checkpoint_path)

    def get_checkpoint_path(self) -> str:
        """Return the directory."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go to the directory that is named for them."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """Return 0: a slot's state is one file of each checkpoint, however small it is."""
        return 0

    def get_write_buffer_size(self) -> int:
        """Return 0: files are written in pieces of whole columns."""
        return 0

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(Options.CHECKPOINT_STORAGE, "filesystem")
        configuration.set(Options.CHECKPOINTS_DIRECTORY, self._checkpoint_path)


class CustomCheckpointStorage(CheckpointStorage):
    """Refuses Flink's storage that wraps a Java class: there is no JVM here."""

    def __init__(self, j_custom_checkpoint_storage: Any) -> None:
        raise TypeError(
            "CustomCheckpointStorage wraps a Java class, and there is no JVM here: FileSystemCheckpointStorage(uri) "
            "takes paths and URIs of stores (s3://, gs://, abfs://, hdfs://)"
        )
