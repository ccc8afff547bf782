"""Tests what the driver prints of checkpoints that fail while the job runs on."""

from __future__ import annotations

from penstock.jobmaster.reports import FailedCheckpoints
from penstock.protocol.values.reasons import FailureReason
from tests.unit.jobmaster.manual_ports import RecordedConsole


def test_the_first_failure_until_a_checkpoint_completes_is_printed() -> None:
    console = RecordedConsole()
    failed = FailedCheckpoints(console)
    failed.failed(1, FailureReason.SUBSUMED, "")
    failed.failed(2, FailureReason.IO_EXCEPTION, "the store is full")
    failed.failed(3, FailureReason.IO_EXCEPTION, "the store is full")
    failed.completed()
    failed.failed(5, FailureReason.EXPIRED, "slot 1 is late")
    assert [text.partition(" (printed")[0] for text in console.warnings] == [
        "checkpoint 2 has failed, and the job runs on (IO_EXCEPTION): the store is full",
        "checkpoint 5 has failed, and the job runs on (CHECKPOINT_EXPIRED): slot 1 is late",
    ]
