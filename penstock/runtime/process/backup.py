"""Opens the directory of a slot's local copies of segments, if the job's options say so."""

from __future__ import annotations

import logging
import os
from typing import Callable

from penstock.common.options import CheckpointingOptions, RocksDBOptions
from penstock.graph.deployment import DeploymentPlan
from penstock.state.rocksdb.rocksdb_settings import local_directories
from penstock.storage.local_backup import LocalBackup

log = logging.getLogger(__name__)

OpenBackup = Callable[[DeploymentPlan], LocalBackup | None]
"""A job -> where a slot keeps copies of its segments; None: it keeps none."""


def opened_backup(plan: DeploymentPlan) -> LocalBackup | None:
    """Return a new directory of copies; None if the job has none, or it cannot be made."""
    configuration = plan.configuration
    if not plan.checkpointing or not configuration.get(CheckpointingOptions.LOCAL_BACKUP_ENABLED):
        return None
    named = configuration.get(CheckpointingOptions.LOCAL_BACKUP_DIRECTORIES)
    parents = named or local_directories(configuration, os.environ)
    try:
        backup = LocalBackup(parents, plan.job_id)
    except OSError as error:
        log.warning(
            "no local copies of checkpoints: %s. Restarts read from checkpoint storage. Name other directories: "
            "execution.checkpointing.local-backup.dirs",
            error,
        )
        return None
    backup.database_copied_from_bytes = configuration.get(RocksDBOptions.LOCAL_COPY_SIZE)
    return backup
