"""Limits the number of a job's checkpoints that are in progress at once."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions


def concurrent_checkpoints_max(configuration: Configuration) -> int:
    """Return the limit. As in Flink, a minimum pause between checkpoints leaves room for one only.

    Args:
        configuration: That of the job.

    Returns:
        How many checkpoints may be in progress at once.
    """
    if configuration.get(CheckpointingOptions.MIN_PAUSE_BETWEEN_CHECKPOINTS).ms > 0:
        return 1
    return configuration.get(CheckpointingOptions.MAX_CONCURRENT_CHECKPOINTS)
