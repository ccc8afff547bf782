"""Shows the settings of a job and of its checkpoints. Secrets are not shown."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, StateBackendOptions
from penstock.common.options.modes import ExternalizedCheckpointRetention
from penstock.common.options.stores import is_secret
from penstock.rest.views.figures import Document

_SECRET_WORDS = ("password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "token")
"""Flink hides the values of options with these words; so do we."""


def shown_options(configuration: Configuration) -> dict[str, str]:
    """Return the options that the user has set, without secrets."""
    return {
        key: "******" if is_secret(key) or any(word in key.lower() for word in _SECRET_WORDS) else text
        for key, text in sorted(configuration.to_dict().items())
    }


def configuration_entries(configuration: Configuration) -> list[dict[str, str]]:
    return [{"key": key, "value": text} for key, text in shown_options(configuration).items()]


def job_settings(job_id: str, name: str, parallelism: int, configuration: Configuration) -> Document:
    return {
        "jid": job_id,
        "name": name,
        "execution-config": {
            "restart-strategy": str(configuration.to_dict().get("restart-strategy.type", "default")),
            "job-parallelism": parallelism,
            "object-reuse-mode": False,
            "user-config": shown_options(configuration),
        },
    }


def checkpoint_settings(configuration: Configuration, directory: str | None) -> Document:
    """Show the settings of checkpoints. `directory`: the job's; None: its checkpoints are in the driver's memory."""
    get, options = configuration.get, CheckpointingOptions
    interval, retention = get(options.CHECKPOINTING_INTERVAL), get(options.EXTERNALIZED_CHECKPOINT_RETENTION)
    keeps = retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    deletes = retention is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    return {
        "mode": "exactly_once",
        "interval": 2**63 - 1 if interval is None else interval.ms,
        "timeout": get(options.CHECKPOINTING_TIMEOUT).ms,
        "min_pause": get(options.MIN_PAUSE_BETWEEN_CHECKPOINTS).ms,
        "max_concurrent": get(options.MAX_CONCURRENT_CHECKPOINTS),
        "externalization": {"enabled": keeps, "delete_on_cancellation": deletes or not keeps},
        "state_backend": get(StateBackendOptions.STATE_BACKEND),
        "checkpoint_storage": "JobManagerCheckpointStorage" if directory is None else "FileSystemCheckpointStorage",
        "checkpoint_directory": directory,
        "unaligned_checkpoints": get(options.ENABLE_UNALIGNED),
        "tolerable_failed_checkpoints": get(options.TOLERABLE_FAILURE_NUMBER),
        "aligned_checkpoint_timeout": get(options.ALIGNED_CHECKPOINT_TIMEOUT).ms,
        "checkpoints_after_tasks_finish": get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
        "incremental": get(options.INCREMENTAL_CHECKPOINTS),
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "memory",
    }
