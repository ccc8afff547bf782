"""Reads settings of checkpoints that take several options: their number at once, their interval during backlog."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions
from penstock.common.options.option import OptionError

_LEAST_MS = 10


def backlog_interval_ms(configuration: Configuration) -> float | None:
    """Return the interval between checkpoints during backlog.

    Args:
        configuration: That of the job.

    Returns:
        The interval in milliseconds; 0: no periodic checkpoints, as in Flink for anything below 10 ms; None: the usual
        one.

    Raises:
        OptionError: The interval is shorter than the usual one.
    """
    option, usual = (
        CheckpointingOptions.CHECKPOINTING_INTERVAL_DURING_BACKLOG,
        CheckpointingOptions.CHECKPOINTING_INTERVAL,
    )
    during, interval = configuration.get(option), configuration.get(usual)
    if during is None:
        return None
    if during.ms < _LEAST_MS:
        return 0.0
    if interval is not None and during.ms < interval.ms:
        raise OptionError(
            f"{option.key}: {during.ms:g} ms is shorter than {usual.key} ({interval.ms:g} ms); write 0 for no "
            "checkpoints during backlog, or an interval that is at least as long",
            option.key,
        )
    return float(during.ms)


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
