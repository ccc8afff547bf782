"""Chooses the backends of keyed state that the options name."""

from __future__ import annotations

from typing import Any, Mapping

from penstock.common.configuration import Configuration
from penstock.common.limits import USUAL, Limits
from penstock.common.options import CheckpointingOptions, StateBackendOptions
from penstock.state.backend import KeyedStateBackend
from penstock.state.columnar.columnar_backend import ColumnarBackend, ColumnarStateBackend
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.ttl import WallClock, system_wall_ms


def row_backend(
    configuration: Configuration,
    max_parallelism: int,
    operator_names: Mapping[str, str],
    wall_ms: WallClock = system_wall_ms,
    limits: Limits = USUAL,
) -> KeyedStateBackend:
    """Return the keyed state of a subtask of row functions. `wall_ms`: the time by which entries expire. Raises
    `StateError` if RocksDB is not installed, or cannot be opened.
    """
    incremental = configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS)
    if _in_memory(configuration):
        return HashMapStateBackend(
            max_parallelism, operator_names, incremental=incremental, wall_ms=wall_ms, limits=limits
        )
    from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
    from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings

    settings = RocksDBSettings.of(configuration)
    return RocksDBStateBackend(
        max_parallelism, operator_names, settings=settings, incremental=incremental, wall_ms=wall_ms, limits=limits
    )


def columnar_backend(
    configuration: Configuration, operator_names: Mapping[str, str], limits: Limits = USUAL
) -> ColumnarBackend[Any]:
    """Return the keyed state of a subtask of columnar operators. Raises as `row_backend`."""
    incremental = configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS)
    if _in_memory(configuration):
        return ColumnarStateBackend(operator_names, incremental=incremental, limits=limits)
    from penstock.state.rocksdb.disk_columnar_backend import RocksDBColumnarBackend
    from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings

    settings = RocksDBSettings.of(configuration)
    return RocksDBColumnarBackend(operator_names, settings=settings, incremental=incremental, limits=limits)


def _in_memory(configuration: Configuration) -> bool:
    return configuration.get(StateBackendOptions.STATE_BACKEND) == "hashmap"
