"""Reads the options that a subtask needs, once."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import ExecutionOptions, NetworkOptions, PenstockOptions, PipelineOptions
from penstock.common.options.modes import RuntimeExecutionMode
from penstock.common.settings.flow_control_settings import flow_control
from penstock.protocol.channel.flow_control import BoundSizer

_PARKING_MS_MAX = 20.0
NEVER_MS = 1e15
_QUEUE_BYTES_PER_CHANNEL = 400
_QUEUE_GROWTH_MAX = 3


@dataclass(frozen=True)
class SubtaskSettings:
    """Holds the options. `slice_ms`: how long a slice is expected to take; `slice_on_disk_ms`: one of columnar
    operators whose state is on disk. `buffer_timeout_ms`: how long a batch may wait for more.
    """

    window_bytes: int
    output_queue_bytes: int
    bound_bytes_min: int
    bound_target_ms: float
    bound_period_ms: float
    bound_samples: int
    bound_threshold: float
    overdraft_bytes_max: int
    buffer_timeout_ms: float
    slice_ms: float
    slice_on_disk_ms: float
    parking_ms_max: float
    object_reuse: bool
    watermark_interval_ms: float
    is_batch: bool = False
    """True: keyed rows are held until their input has ended, and no watermark comes before."""

    def window_sizer(self) -> BoundSizer:
        """Return a sizer for the window of one input gate."""
        return self._sizer(self.bound_bytes_min, self.window_bytes)

    def output_queue_sizer(self, channels: int) -> BoundSizer:
        """Return a sizer for the queues of one output edge. With many channels the least size is up to three times
        as large: some consumers have more rows than others for a moment, and else their rows leave no room for those of
        the rest, which run out of work (a sixteenth of the throughput with 64 channels).
        """
        spread_bytes = min(channels * _QUEUE_BYTES_PER_CHANNEL, _QUEUE_GROWTH_MAX * self.bound_bytes_min)
        return self._sizer(max(self.bound_bytes_min, spread_bytes), self.output_queue_bytes)

    def _sizer(self, bytes_min: int, bytes_max: int) -> BoundSizer:
        return BoundSizer(bytes_min, bytes_max, self.bound_target_ms, self.bound_samples, self.bound_threshold)

    @staticmethod
    def of(configuration: Configuration) -> SubtaskSettings:
        buffered = configuration.get(ExecutionOptions.BUFFER_TIMEOUT_ENABLED)
        queue_bytes = configuration.get(NetworkOptions.OUTPUT_QUEUE_BYTES)
        bounds = flow_control(configuration)
        return SubtaskSettings(
            window_bytes=configuration.get(NetworkOptions.WINDOW_BYTES),
            output_queue_bytes=queue_bytes,
            bound_bytes_min=configuration.get(NetworkOptions.BOUND_BYTES_MIN),
            bound_target_ms=bounds.target_ms,
            bound_period_ms=bounds.period_ms,
            bound_samples=bounds.samples,
            bound_threshold=bounds.threshold,
            overdraft_bytes_max=queue_bytes + configuration.get(NetworkOptions.OVERDRAFT_BYTES_MAX),
            buffer_timeout_ms=configuration.get(ExecutionOptions.BUFFER_TIMEOUT).ms if buffered else NEVER_MS,
            slice_ms=configuration.get(PenstockOptions.SLICE_TARGET).ms,
            slice_on_disk_ms=configuration.get(PenstockOptions.SLICE_TARGET_ON_DISK).ms,
            parking_ms_max=_PARKING_MS_MAX if configuration.get(PenstockOptions.PARKING_ENABLED) else 0.0,
            object_reuse=configuration.get(PipelineOptions.OBJECT_REUSE),
            watermark_interval_ms=configuration.get(PipelineOptions.AUTO_WATERMARK_INTERVAL).ms,
            is_batch=configuration.get(ExecutionOptions.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
        )
