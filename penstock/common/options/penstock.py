"""Defines options that Flink does not have."""

from __future__ import annotations

from penstock.common.options.option import BOOLEAN, DURATION, ConfigOption, positive
from penstock.common.time import Duration


class PenstockOptions:
    """Holds options that Flink does not have."""

    SLICE_TARGET = ConfigOption(
        "penstock.slice.target", DURATION, Duration.of_millis(2),
        "How long a chain may work before it looks at its mailbox: what a barrier waits for at most, but for one row.",
        check=positive,
    )  # fmt: skip
    PARKING_ENABLED = ConfigOption(
        "penstock.parking.enabled", BOOLEAN, True,
        "Whether a slot's subtasks rest for a moment (20 ms at most) while its captured data is written.",
    )  # fmt: skip
    DATA_FRAMES_IGNORE_CHANGES = ConfigOption(
        "penstock.data-frames.ignore-changes", BOOLEAN, False,
        "Whether a job that is resumed goes on with the rows which its DataFrames had when it began, although their "
        "queries or files are others now. Otherwise it is refused.",
    )  # fmt: skip
    PROGRESS_ENABLED = ConfigOption(
        "penstock.progress.enabled", BOOLEAN, True,
        "Whether a terminal shows a line of progress while a job runs: rows per second and the newest checkpoint.",
    )  # fmt: skip
