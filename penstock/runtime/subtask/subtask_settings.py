"""Reads the options that a subtask needs, once."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import ExecutionOptions, NetworkOptions, PenstockOptions, PipelineOptions
from penstock.protocol.channel.flow_control import BoundSizer

_PARKING_MS_MAX = 20.0
NEVER_MS = 1e15


@dataclass(frozen=True)
class SubtaskSettings:
    """Holds the options. `slice_ms`: how long a slice is expected to take. `buffer_timeout_ms`: how long a batch may
    wait for more.
    """

    window_bytes: int
    output_queue_bytes: int
    bound_bytes_min: int
    bound_target_ms: float
    overdraft_bytes_max: int
    buffer_timeout_ms: float
    slice_ms: float
    parking_ms_max: float
    object_reuse: bool
    watermark_interval_ms: float

    def window_sizer(self) -> BoundSizer:
        """Return a sizer for the window of one input gate."""
        return BoundSizer(self.bound_bytes_min, self.window_bytes, self.bound_target_ms)

    def output_queue_sizer(self) -> BoundSizer:
        """Return a sizer for the queues of one output edge."""
        return BoundSizer(self.bound_bytes_min, self.output_queue_bytes, self.bound_target_ms)

    @staticmethod
    def of(configuration: Configuration) -> SubtaskSettings:
        buffered = configuration.get(ExecutionOptions.BUFFER_TIMEOUT_ENABLED)
        queue_bytes = configuration.get(NetworkOptions.OUTPUT_QUEUE_BYTES)
        return SubtaskSettings(
            window_bytes=configuration.get(NetworkOptions.WINDOW_BYTES),
            output_queue_bytes=queue_bytes,
            bound_bytes_min=configuration.get(NetworkOptions.BOUND_BYTES_MIN),
            bound_target_ms=configuration.get(NetworkOptions.BOUND_TARGET).ms,
            overdraft_bytes_max=queue_bytes + configuration.get(NetworkOptions.OVERDRAFT_BYTES_MAX),
            buffer_timeout_ms=configuration.get(ExecutionOptions.BUFFER_TIMEOUT).ms if buffered else NEVER_MS,
            slice_ms=configuration.get(PenstockOptions.SLICE_TARGET).ms,
            parking_ms_max=_PARKING_MS_MAX if configuration.get(PenstockOptions.PARKING_ENABLED) else 0.0,
            object_reuse=configuration.get(PipelineOptions.OBJECT_REUSE),
            watermark_interval_ms=configuration.get(PipelineOptions.AUTO_WATERMARK_INTERVAL).ms,
        )
