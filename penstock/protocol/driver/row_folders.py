"""Decides which folders of rows a driver may delete at its end.

Some sources (DataFrames) have their rows written to a folder of the job's directory before the slots start, and so
before the driver owns the job's log. The folder has a random name, and nobody else reads it until a checkpoint in the
log names it: a driver that continues without a checkpoint makes a folder of its own. See PROTOCOL.md 11.23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum


class Release(Enum):
    """Lists the folders that the end of a driver releases."""

    NOTHING = "nothing: a checkpoint of this driver may name its folders, or whoever owns the log decides"
    OWN = "what this driver has written: no checkpoint in the log can name it"
    ALL = "all folders of the job: its end is in the log, and no driver continues it"


def released_at_end(log_is_ended: bool, keeps_checkpoints: bool, may_begin_again: bool, has_run: bool) -> Release:
    """Return the row folders that the end of a driver releases.

    `log_is_ended`: an entry of this driver in the log, which counts, ends the job. `keeps_checkpoints`: that entry
    retains some. `may_begin_again`: the next driver starts the job from scratch, and may have written its rows already.
    `has_run`: a generation has run in this driver, so checkpoints of it may be in the log.
    """
    # 11.23: a driver that has not run the job deletes nothing but its own folder.
    if log_is_ended and not keeps_checkpoints:
        return Release.OWN if may_begin_again else Release.ALL
    return Release.NOTHING if has_run else Release.OWN


def released_folders(release: Release, own: Iterable[str], all_of_job: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names of the folders to delete. `own`: those that this start has written. `all_of_job` lists the
    job's directory."""
    match release:
        case Release.NOTHING:
            return []
        case Release.OWN:
            return list(own)
        case Release.ALL:
            return list(all_of_job())
