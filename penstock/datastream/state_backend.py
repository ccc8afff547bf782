"""Defines the backends that keep keyed state while a job runs."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, RocksDBOptions, StateBackendOptions
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)

_OPTIONS_FACTORY = "state.backend.rocksdb.options-factory"
_PREDEFINED = "state.backend.rocksdb.predefined-options"
_TRANSFER_THREADS = "state.backend.rocksdb.checkpoint.transfer.thread.num"


class StateBackend:
    """Describes a backend that keeps keyed state while the job runs."""

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


class PredefinedOptions(Enum):
    """Names Flink's sets of options for RocksDB. They have no effect here: each option has one default, as measured."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


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
        self._predefined = PredefinedOptions.DEFAULT
        self._without_effect: dict[str, str] = {}
        """By key: options that are accepted, and named in a warning when the job starts."""

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

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accept one of Flink's sets of options for RocksDB, which has no effect here. A warning says so.

        Args:
            options: The set. `state.backend.rocksdb.*` sets single options.

        Raises:
            TypeError: It is no `PredefinedOptions`.
        """
        if not isinstance(options, PredefinedOptions):
            raise TypeError(f"set_predefined_options() takes PredefinedOptions, not {options!r}")
        self._predefined = options
        self._without_effect.pop(_PREDEFINED, None)
        if options is not PredefinedOptions.DEFAULT:
            self._without_effect[_PREDEFINED] = options.name

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the set of options that was set; `PredefinedOptions.DEFAULT` if none was."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Accept the name of a Java class that makes options for RocksDB, which has no effect here. A warning says so.

        Args:
            options_factory_class_name: The name. `state.backend.rocksdb.*` sets single options.
        """
        self._without_effect[_OPTIONS_FACTORY] = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the name of the class that was set; None if none was."""
        return self._without_effect.get(_OPTIONS_FACTORY)

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Accept a number of threads, which has no effect here: each slot stores with one. A warning says so.

        Args:
            number_of_transfering_threads: The number, at least 1.

        Raises:
            ValueError: The number is less than 1.
        """
        if number_of_transfering_threads < 1:
            raise ValueError(f"number_of_transfering_threads must be at least 1, not {number_of_transfering_threads}")
        self._without_effect[_TRANSFER_THREADS] = str(number_of_transfering_threads)

    def get_number_of_transfer_threads(self) -> int:
        """Return the number of threads that was set; Flink's 4 if none was."""
        return int(self._without_effect.get(_TRANSFER_THREADS, "4"))

    def apply_to(self, configuration: Configuration) -> None:
        super().apply_to(configuration)
        if self._incremental is not None:
            configuration.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, self._incremental)
        if self._paths:
            configuration.set(RocksDBOptions.LOCAL_DIRECTORIES, self._paths)
        for key, text in self._without_effect.items():
            configuration.set_string(key, text)


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
        self._storage: CheckpointStorage = FileSystemCheckpointStorage(checkpoint_directory_uri)
        self._savepoints = default_savepoint_directory_uri

    def apply_to(self, configuration: Configuration) -> None:
        super().apply_to(configuration)
        self._storage.apply_to(configuration)
        if self._savepoints is not None:
            configuration.set(CheckpointingOptions.SAVEPOINT_DIRECTORY, self._savepoints)


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Combines `EmbeddedRocksDBStateBackend` and `FileSystemCheckpointStorage`, as in Flink, where it is deprecated.

    Args:
        checkpoint_data_uri: Where checkpoints are written to.
        enable_incremental_checkpointing: See `EmbeddedRocksDBStateBackend`.
        checkpoint_stream_backend: An `FsStateBackend` or `MemoryStateBackend`. Without a URI its directories count.

    Raises:
        ValueError: There is neither a URI nor a backend.
    """

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: FsStateBackend | MemoryStateBackend | None = None,
    ) -> None:
        _warn("RocksDBStateBackend(uri)", "EmbeddedRocksDBStateBackend()", "FileSystemCheckpointStorage(uri)")
        super().__init__(enable_incremental_checkpointing)
        self._checkpoints: CheckpointStorage | StateBackend
        if checkpoint_data_uri is not None:
            self._checkpoints = FileSystemCheckpointStorage(checkpoint_data_uri)
        elif checkpoint_stream_backend is not None:
            self._checkpoints = checkpoint_stream_backend
        else:
            raise ValueError("RocksDBStateBackend needs checkpoint_data_uri, or a checkpoint_stream_backend")

    def apply_to(self, configuration: Configuration) -> None:
        self._checkpoints.apply_to(configuration)
        super().apply_to(configuration)

    def set_number_of_transfering_threads(self, number_of_transfering_threads: int) -> None:
        """Set the number of transfer threads, under this class's name for it in PyFlink.

        Args:
            number_of_transfering_threads: The number, at least 1.

        Raises:
            ValueError: The number is less than 1.
        """
        self.set_number_of_transfer_threads(number_of_transfering_threads)

    def get_number_of_transfering_threads(self) -> int:
        """Return the number of transfer threads, under this class's name for it in PyFlink."""
        return self.get_number_of_transfer_threads()


def _warn(old: str, backend: str, storage: str) -> None:
    warnings.warn(
        f"{old} is an older name: use env.set_state_backend({backend}) and "
        f"env.get_checkpoint_config().set_checkpoint_storage({storage})",
        DeprecationWarning,
        stacklevel=3,
    )


class CustomStateBackend(StateBackend):
    """Refuses Flink's backend that wraps a Java class: there is no JVM here."""

    def __init__(self, j_custom_state_backend: Any) -> None:
        raise TypeError(
            "CustomStateBackend wraps a Java class, and there is no JVM here: use HashMapStateBackend() or "
            "EmbeddedRocksDBStateBackend()"
        )
