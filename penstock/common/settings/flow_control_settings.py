"""Reads the bounds of data in flight: by our own option, or by Flink's for buffer debloating."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import NetworkOptions, TaskManagerOptions

_PARTS = 2
"""Flink's target counts what is in output queues and at the consumer; ours counts each."""


@dataclass(frozen=True)
class FlowControl:
    """Holds the values. `target_ms` 0: windows and queues have their greatest size. `threshold` is a share."""

    target_ms: float
    period_ms: float
    samples: int
    threshold: float


def flow_control(configuration: Configuration) -> FlowControl:
    """Return the settings by which windows and output queues follow the consumed rate.

    Args:
        configuration: That of the job.

    Returns:
        The values that the options give.
    """
    options = TaskManagerOptions
    enabled = configuration.get(options.BUFFER_DEBLOAT_ENABLED)
    target = configuration.get(options.BUFFER_DEBLOAT_TARGET)
    if enabled is False:
        target_ms = 0.0
    elif target is not None:
        target_ms = target.ms / _PARTS
    else:  # also if enabled: with Flink's target of 1 s checkpoints would wait forty times as long as with ours
        target_ms = configuration.get(NetworkOptions.BOUND_TARGET).ms
    period = configuration.get(options.BUFFER_DEBLOAT_PERIOD)
    samples = configuration.get(options.BUFFER_DEBLOAT_SAMPLES)
    percentage = configuration.get(options.BUFFER_DEBLOAT_THRESHOLD_PERCENTAGES)
    return FlowControl(
        target_ms=target_ms,
        period_ms=period.ms if period is not None else target_ms,
        samples=samples if samples is not None else 9,
        threshold=(percentage or 0) / 100,
    )
