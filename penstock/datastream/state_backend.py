"""Where keyed state lives, as PyFlink's classes say it."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions


class StateBackend:
    name = ""

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(StateBackendOptions.STATE_BACKEND, self.name)


class HashMapStateBackend(StateBackend):
    """In the memory of the slots."""

    name = "hashmap"


class EmbeddedRocksDBStateBackend(StateBackend):
    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        raise NotImplementedError("EmbeddedRocksDBStateBackend comes with a later release; use HashMapStateBackend")
