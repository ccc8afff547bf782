"""Decides which transactional ids a writer may use."""

from __future__ import annotations


class TransactionalIds:
    """Hands out a writer's ids. `stem` is unique to the subtask and the generation.

    An id is handed out again when no restore can repeat the commit of its last transaction (PROTOCOL.md 11.20). Whoever
    gets it starts a new producer, because that begins a new epoch. Without this: a repeated commit makes a part of the
    next transaction visible, for a producer keeps its epoch over its transactions.
    """

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self._free: list[str] = []
        self._prepared: dict[str, int] = {}
        self._numbers = 0

    def take(self) -> str:
        """Return an id that nobody uses."""
        if self._free:
            return self._free.pop(0)
        self._numbers += 1
        return f"{self._stem}-{self._numbers - 1}"

    def prepared(self, transactional_id: str, checkpoint_id: int) -> None:
        """Keep an id from being used: its transaction is prepared.

        Args:
            transactional_id: The id.
            checkpoint_id: The checkpoint that it is prepared for.
        """
        self._prepared[transactional_id] = checkpoint_id

    def commits_confirmed(self, checkpoint_id: int) -> None:
        """Release the ids of transactions that no restore can commit again.

        Args:
            checkpoint_id: The newest such checkpoint. The transactions of earlier checkpoints are over, too.
        """
        for name in [name for name, at in self._prepared.items() if at <= checkpoint_id]:
            del self._prepared[name]
            self._free.append(name)
