"""Warns of checkpoints that fail while the job runs on: without it only the report names what the store answers."""

from __future__ import annotations

from penstock.jobmaster.console import Console
from penstock.protocol.values.reasons import FailureReason


class FailedCheckpoints:
    """Prints the first failure after a checkpoint that has completed. While a store is away, many follow."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_warned = False

    def failed(self, checkpoint_id: int, reason: FailureReason, detail: str) -> None:
        """Note a failed checkpoint that does not fail the job."""
        if self._has_warned or not reason.counts:
            return
        self._has_warned = True
        self._console.warning(
            f"checkpoint {checkpoint_id} has failed, and the job runs on ({reason}): {detail} (printed once, until a "
            "checkpoint completes; the report has all)"
        )

    def completed(self) -> None:
        """Note that a checkpoint has completed."""
        self._has_warned = False
