"""Defines where keyed state is kept while a job runs."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions


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
    """Raises NotImplementedError: state on the disks of the slots comes with a later release."""

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        raise NotImplementedError("EmbeddedRocksDBStateBackend comes with a later release; use HashMapStateBackend")
