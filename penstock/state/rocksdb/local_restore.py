"""Restores the state of backends that keep it in a RocksDB of their own, by their `LocalState`."""

from __future__ import annotations

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import RestoringSubtask, StoredState
from penstock.state.codecs import RestoredRun
from penstock.state.restored import RestoringBackend, StateName
from penstock.state.rocksdb.local_state import LocalState


class LocalRestore(RestoringBackend):
    """Implements the restore, and the database's life, for the backends of rows and of columns."""

    _local: LocalState

    def check_room(self, stored_bytes: int) -> None:
        self._local.check_room(stored_bytes)

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        self._local.on_restored(checkpoint_id, stored)

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        super().restore(operator, name, data, key_groups)
        self._local.on_run_restored((operator, name))

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        return self._local.restore_copy(subtask)

    def metrics(self) -> dict[str, int]:
        """Return RocksDB's own figures, as far as the options ask for them."""
        return self._local.metrics()

    def _before_fitting(self, declared: StateSchema) -> None:
        restored = self._restored_schema((declared.operator, declared.name))
        self._local.claim(declared, restored, self._restore_first)

    def _store_whole(self, name: StateName) -> None:
        self._local.begin_again(name)

    def _kept(self, run: RestoredRun) -> RestoredRun:
        return self._local.spooled(run)
