"""Records the runs that backends in memory restore, so that incremental checkpoints reference them instead of writing
them again."""

from __future__ import annotations

from typing import Any

from penstock.state.backend import StoredState
from penstock.state.chains import Chains
from penstock.state.restored import RestoringBackend, StateName


class ChainedRestore(RestoringBackend):
    """Reports restored runs to `_changes`; None: checkpoints are not incremental."""

    _changes: Chains[Any] | None

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        if self._changes is not None:
            self._changes.on_restored(checkpoint_id, stored)

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        super().restore(operator, name, data, key_groups)
        if self._changes is not None:
            self._changes.on_run_restored((operator, name))

    def _store_whole(self, name: StateName) -> None:
        if self._changes is not None:
            self._changes.begin_again(name)
