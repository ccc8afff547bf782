"""Gives checkpoints more time where a plan draws too little of it, as a user does who sees each of them expire."""

from __future__ import annotations

from typing import Callable

from penstock.protocol.values.reasons import FailureReason

EXPIRED_IN_A_ROW = 50
LONGER_TIMEOUT = "59 s"
"""Shorter than what runs without faults draw, whose checkpoints may not fail."""


class Patience:
    """Counts checkpoints that expire one after the other, none next to another one.

    A job that ends, or is rescaled, waits for a checkpoint. With a timeout that is too short for its state it waits for
    ever, and that is no defect. Checkpoints that hold each other up are one, so those are not counted.

    Args:
        resume: Ends the driver, and resumes the job with this timeout.
    """

    def __init__(self, resume: Callable[[str], None]) -> None:
        self._resume = resume
        self._expired = 0
        self._is_spent = False

    def on_published(self) -> None:
        self._expired = 0

    def on_aborted(self, reason: str, is_alone: bool) -> None:
        """Count an expired checkpoint. `is_alone`: no other one is pending."""
        if reason != FailureReason.EXPIRED or not is_alone:
            self._expired = 0
            return
        self._expired += 1
        if self._expired == EXPIRED_IN_A_ROW and not self._is_spent:
            self._is_spent = True
            self._resume(LONGER_TIMEOUT)
