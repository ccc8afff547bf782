"""Describes how a job ended."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.driver.row_folders import Release


@dataclass(frozen=True)
class JobOutcome:
    """Holds a job's outcome. `state`: FINISHED, CANCELED or FAILED. `error` begins with the user's traceback if there
    is one. `resume_from`: the job's directory, if a checkpoint is retained in it. `runtime_ms` is from start to end.
    `is_suspended`: only this driver has ended; another one continues the job, or will. `releases`: the folders
    of rows that may be deleted.
    """

    state: str
    error: str | None
    resume_from: str | None
    runtime_ms: float
    is_suspended: bool = False
    releases: Release = Release.NOTHING
