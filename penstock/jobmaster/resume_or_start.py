"""Decides whether a start of a program resumes its job, begins it, or finds it finished (`high-availability.type`).

Supervisors start the same command again, whatever has become of the job. Its log says what that was. Two drivers that
start at once both read a log that neither owns; the fence of the JobMaster decides between them later.
"""

from __future__ import annotations

import hashlib

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, HighAvailabilityOptions, OptionError
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, stopped_with
from penstock.storage.log import Entry, look_at_log
from penstock.storage.store import ObjectStore


def is_available(configuration: Configuration) -> bool:
    """Return whether every start resumes the job. Raises `OptionError` if it could not."""
    if configuration.get(HighAvailabilityOptions.HA_MODE) == "none":
        return False
    needed = [CheckpointingOptions.CHECKPOINTING_INTERVAL.key, CheckpointingOptions.CHECKPOINTS_DIRECTORY.key]
    missing = [key for key in needed if configuration.get(key) is None]
    if configuration.get(CheckpointingOptions.CHECKPOINT_STORAGE) == "jobmanager":
        missing = [f"{CheckpointingOptions.CHECKPOINT_STORAGE.key} = filesystem"]
    if missing:
        raise OptionError(
            f"{HighAvailabilityOptions.HA_MODE.key} is filesystem, so that each start resumes the job from its "
            f"checkpoints; that needs {' and '.join(missing)}",
            HighAvailabilityOptions.HA_MODE.key,
        )
    return True


def job_id_of(job_name: str) -> str:
    """Return the id of a job that is found by its name: the same for every start."""
    return hashlib.sha256(f"penstock job {job_name}".encode()).hexdigest()[:32]


def has_run(store: ObjectStore) -> tuple[bool, Ended | None, str | None]:
    """Return whether the job's log has entries, how its last driver ended it, and the savepoint that it was stopped
    with. Raises `StoreError` if the log is damaged.

    A job counts as cancelled only until somebody resumes it from what it has kept.
    """
    return look_at_log(store, _look)


def _look(log: list[Entry]) -> tuple[bool, Ended | None, str | None]:
    for entry in reversed(log):
        if isinstance(entry, CheckpointEntry):
            break
        if isinstance(entry, Ended):
            was_resumed = entry is not log[-1] and entry.retained
            return True, None if was_resumed else entry, stopped_with(log)
    return bool(log), None, None
