"""Defines options that Flink does not have."""

from __future__ import annotations

from penstock.common.options.option import BOOLEAN, DURATION, ConfigOption, positive
from penstock.common.time import Duration


class PenstockOptions:
    """Holds options that Flink does not have."""

    SLICE_TARGET = ConfigOption(
        "penstock.slice.target",
        DURATION,
        Duration.of_millis(2),
        "How long a chain may work before it checks its mailbox. A barrier waits no longer than this and one row.",
        check=positive,
    )
    SLICE_TARGET_ON_DISK = ConfigOption(
        "penstock.slice.target-on-disk",
        DURATION,
        Duration.of_millis(10),
        "The same for columnar operators with state in RocksDB, where each slice costs a read and a write.",
        check=positive,
    )
    PARKING_ENABLED = ConfigOption(
        "penstock.parking.enabled",
        BOOLEAN,
        True,
        "Pause a slot's subtasks for a moment (20 ms at most) while its captured data is written.",
    )
    DATA_FRAMES_IGNORE_CHANGES = ConfigOption(
        "penstock.data-frames.ignore-changes",
        BOOLEAN,
        False,
        "Resume a job with the rows that its DataFrames had when it began, even if their queries or files have "
        "changed. Off: it is refused.",
    )
    LOG_INTERVAL = ConfigOption(
        "penstock.log.interval",
        DURATION,
        Duration.of_minutes(1),
        "How often a driver without a terminal writes a line with rows per second, lag and the newest checkpoint while "
        "its job runs. 0: never.",
    )
    PROGRESS_ENABLED = ConfigOption(
        "penstock.progress.enabled",
        BOOLEAN,
        True,
        "Show a line of progress on a terminal while a job runs: rows per second and the newest checkpoint.",
    )
