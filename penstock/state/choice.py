"""Chooses the backend of keyed state that the options name."""

from __future__ import annotations

from typing import Mapping

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, StateBackendOptions
from penstock.state.backend import KeyedStateBackend
from penstock.state.heap.hash_map import HashMapStateBackend


def row_backend(
    configuration: Configuration, max_parallelism: int, operator_names: Mapping[str, str]
) -> KeyedStateBackend:
    """Return the keyed state of a subtask of row functions. Raises `StateError` if RocksDB is not installed, or cannot
    be opened.
    """
    if configuration.get(StateBackendOptions.STATE_BACKEND) == "hashmap":
        return HashMapStateBackend(max_parallelism, operator_names)
    from penstock.state.rocksdb.backend import RocksDBStateBackend
    from penstock.state.rocksdb.settings import RocksDBSettings

    return RocksDBStateBackend(
        max_parallelism,
        operator_names,
        settings=RocksDBSettings.of(configuration),
        incremental=configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS),
    )
