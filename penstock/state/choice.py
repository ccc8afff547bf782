"""Chooses the backends of keyed state that the options name, from a registry."""

from __future__ import annotations

import importlib
from typing import Any, Mapping, Protocol, cast

from penstock.common.configuration import Configuration
from penstock.common.limits import USUAL, Limits
from penstock.common.options import CheckpointingOptions, StateBackendOptions
from penstock.state.backend import KeyedStateBackend
from penstock.state.columnar.columnar_backend import ColumnarBackend
from penstock.state.ttl import WallClock, system_wall_ms

BACKENDS = {"hashmap": "penstock.state.heap.hash_map", "rocksdb": "penstock.state.rocksdb.rocksdb_backend"}
"""The module of each backend, by its value of `state.backend.type`: it has the functions of `BackendModule`, and is
imported when a job asks for it."""


class BackendModule(Protocol):
    """Makes the two kinds of state of a subtask. `operator_names`: uid -> name. Raises `StateError` if the backend is
    not installed, or cannot be opened.
    """

    def row_state(
        self,
        configuration: Configuration,
        max_parallelism: int,
        operator_names: Mapping[str, str],
        incremental: bool,
        wall_ms: WallClock,
        limits: Limits,
    ) -> KeyedStateBackend: ...

    def columnar_state(
        self, configuration: Configuration, operator_names: Mapping[str, str], incremental: bool, limits: Limits
    ) -> ColumnarBackend[Any]: ...


def row_backend(
    configuration: Configuration,
    max_parallelism: int,
    operator_names: Mapping[str, str],
    wall_ms: WallClock = system_wall_ms,
    limits: Limits = USUAL,
) -> KeyedStateBackend:
    """Return the keyed state of a subtask of row functions. `wall_ms`: the time by which entries expire."""
    incremental = configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS)
    module = _module(configuration)
    return module.row_state(configuration, max_parallelism, operator_names, incremental, wall_ms, limits)


def columnar_backend(
    configuration: Configuration, operator_names: Mapping[str, str], limits: Limits = USUAL
) -> ColumnarBackend[Any]:
    """Return the keyed state of a subtask of columnar operators."""
    incremental = configuration.get(CheckpointingOptions.INCREMENTAL_CHECKPOINTS)
    return _module(configuration).columnar_state(configuration, operator_names, incremental, limits)


def _module(configuration: Configuration) -> BackendModule:
    return cast(BackendModule, importlib.import_module(BACKENDS[configuration.get(StateBackendOptions.STATE_BACKEND)]))
