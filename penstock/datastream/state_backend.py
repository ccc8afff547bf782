"""Defines where keyed state is kept while a job runs."""

from __future__ import annotations

import warnings

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, RocksDBOptions, StateBackendOptions
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)


class StateBackend:
    """Describes where keyed state is kept while the job runs."""

    name = ""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this backend.

        Args:
            configuration: The configuration to change.
        """
        configuration.set(StateBackendOptions.STATE_BACKEND, self.name)


class HashMapStateBackend(StateBackend):
    """Keeps keyed state in the memory of the slots."""

    name = "hashmap"


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps keyed state on the disks of the slots, in RocksDB. It needs `pip install penstock[rocksdb]`.

    Args:
        enable_incremental_checkpointing: Whether checkpoints store only what has changed since the one before. None:
            as `execution.checkpointing.incremental` says.
    """

    name = "rocksdb"

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] = ()

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the directories of the slots' machines for RocksDB's files. Each subtask uses one of them.

        Args:
            paths: The directories. None at all: those of `io.tmp.dirs`.
        """
        self._paths = tuple(str(path) for path in paths)

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the directories that were set; None if none were."""
        return list(self._paths) or None

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return whether the backend was made with incremental checkpoints."""
        return bool(self._incremental)

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this backend.

        Args:
            configuration: The configuration to change.
        """
        super().apply_to(configuration)
        if self._incremental is not None:
            configuration.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, self._incremental)
        if self._paths:
            configuration.set(RocksDBOptions.LOCAL_DIRECTORIES, self._paths)


class MemoryStateBackend(HashMapStateBackend):
    """Combines `HashMapStateBackend` and `JobManagerCheckpointStorage`, as in Flink, where it is deprecated.

    Args:
        max_state_size: The size of the largest object that a checkpoint may have, in bytes.
        using_asynchronous_snapshots: Has no meaning: snapshots always are.
    """

    def __init__(self, max_state_size: int | None = None, using_asynchronous_snapshots: bool | None = None) -> None:
        _warn("MemoryStateBackend()", "HashMapStateBackend()", "JobManagerCheckpointStorage()")
        self._storage: CheckpointStorage = JobManagerCheckpointStorage(max_state_size=max_state_size)

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this backend and its storage.

        Args:
            configuration: The configuration to change.
        """
        super().apply_to(configuration)
        self._storage.apply_to(configuration)


class FsStateBackend(HashMapStateBackend):
    """Combines `HashMapStateBackend` and `FileSystemCheckpointStorage`, as in Flink, where it is deprecated.

    Args:
        checkpoint_directory_uri: Where checkpoints are written to.
        default_savepoint_directory_uri: Where savepoints are written to that name no directory.
        file_state_size_threshold: Has no meaning here.
        write_buffer_size: Has no meaning here.
        using_asynchronous_snapshots: Has no meaning: snapshots always are.
    """

    def __init__(
        self,
        checkpoint_directory_uri: str,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        _warn("FsStateBackend(uri)", "HashMapStateBackend()", "FileSystemCheckpointStorage(uri)")
        self._storage = FileSystemCheckpointStorage(checkpoint_directory_uri)
        self._savepoints = default_savepoint_directory_uri

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this backend and its storage.

        Args:
            configuration: The configuration to change.
        """
        super().apply_to(configuration)
        self._storage.apply_to(configuration)
        if self._savepoints is not None:
            configuration.set(CheckpointingOptions.SAVEPOINT_DIRECTORY, self._savepoints)


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Combines `EmbeddedRocksDBStateBackend` and `FileSystemCheckpointStorage`, as in Flink, where it is deprecated.

    Args:
        checkpoint_data_uri: Where checkpoints are written to.
        enable_incremental_checkpointing: See `EmbeddedRocksDBStateBackend`.
    """

    def __init__(self, checkpoint_data_uri: str, enable_incremental_checkpointing: bool | None = None) -> None:
        _warn("RocksDBStateBackend(uri)", "EmbeddedRocksDBStateBackend()", "FileSystemCheckpointStorage(uri)")
        super().__init__(enable_incremental_checkpointing)
        self._storage = FileSystemCheckpointStorage(checkpoint_data_uri)

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options of this backend and its storage.

        Args:
            configuration: The configuration to change.
        """
        super().apply_to(configuration)
        self._storage.apply_to(configuration)


def _warn(old: str, backend: str, storage: str) -> None:
    warnings.warn(
        f"{old} is an older name: use env.set_state_backend({backend}) and "
        f"env.get_checkpoint_config().set_checkpoint_storage({storage})",
        DeprecationWarning,
        stacklevel=3,
    )
