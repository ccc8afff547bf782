"""Remembers which answers of a simulated service a checkpoint has to hold."""

from __future__ import annotations

Row = tuple[int, int, int, int, int]
CheckpointName = tuple[str, int]
"""The incarnation of the driver that took a checkpoint, and its id."""


class CallLog:
    """Counts calls. `answered`: the rows of an operator that were answered before its snapshots for a checkpoint."""

    def __init__(self) -> None:
        self.calls = 0
        self.spared = 0
        """The number of rows that were answered before a checkpoint and held by it, when a job was restored from it."""
        self._answered: dict[tuple[str, CheckpointName], set[Row]] = {}

    def on_snapshot(self, operator: str, checkpoint: CheckpointName, answered: set[Row]) -> None:
        """Note the rows that one subtask has answered."""
        self._answered.setdefault((operator, checkpoint), set()).update(answered)

    def answered_before(self, operator: str, checkpoint: CheckpointName | None) -> set[Row]:
        """Return the rows that must not be asked for again in a job that was restored from a checkpoint."""
        return set() if checkpoint is None else set(self._answered.get((operator, checkpoint), ()))
