"""CheckpointConfig: PyFlink's setters and getters over the options `execution.checkpointing.*`."""

from __future__ import annotations

from pathlib import Path

from penstock.common.checkpointing import CheckpointingMode, ExternalizedCheckpointRetention
from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions as Options
from penstock.common.options import OptionError
from penstock.common.time import Duration
from penstock.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage

ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention
"""Its name in Flink 1.x."""


class CheckpointConfig:
    """Times are milliseconds. A value that cannot be is refused at once, with `OptionError`."""

    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 10 * 60 * 1000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        return self._configuration.get(Options.CHECKPOINTING_INTERVAL) is not None

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self._configuration.get(Options.CHECKPOINTING_CONSISTENCY_MODE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        self._configuration.set(Options.CHECKPOINTING_CONSISTENCY_MODE, checkpointing_mode)
        return self

    get_checkpointing_consistency_mode = get_checkpointing_mode
    set_checkpointing_consistency_mode = set_checkpointing_mode

    def get_checkpoint_interval(self) -> int:
        """-1: no checkpoints."""
        interval: Duration | None = self._configuration.get(Options.CHECKPOINTING_INTERVAL)
        return -1 if interval is None else interval.to_millis()

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        if not checkpoint_interval > 0:
            raise OptionError(
                f"{Options.CHECKPOINTING_INTERVAL.key}: {checkpoint_interval} is refused: it must be at least 10 ms",
                Options.CHECKPOINTING_INTERVAL.key,
            )
        self._configuration.set(Options.CHECKPOINTING_INTERVAL, checkpoint_interval)
        return self

    def get_checkpoint_timeout(self) -> int:
        return self._configuration.get(Options.CHECKPOINTING_TIMEOUT).to_millis()

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        self._configuration.set(Options.CHECKPOINTING_TIMEOUT, checkpoint_timeout)
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        return self._configuration.get(Options.MIN_PAUSE_BETWEEN_CHECKPOINTS).to_millis()

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        self._configuration.set(Options.MIN_PAUSE_BETWEEN_CHECKPOINTS, min_pause_between_checkpoints)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        return self._configuration.get(Options.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        self._configuration.set(Options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._configuration.get(Options.TOLERABLE_FAILURE_NUMBER)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        self._configuration.set(Options.TOLERABLE_FAILURE_NUMBER, tolerable_checkpoint_failure_number)
        return self

    def is_fail_on_checkpointing_errors(self) -> bool:
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_retention(self, retention: ExternalizedCheckpointRetention) -> CheckpointConfig:
        self._configuration.set(Options.EXTERNALIZED_CHECKPOINT_RETENTION, retention)
        return self

    set_externalized_checkpoint_cleanup = set_externalized_checkpoint_retention

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return self._configuration.get(Options.EXTERNALIZED_CHECKPOINT_RETENTION)

    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        return (
            self.get_externalized_checkpoint_retention()
            is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._configuration.get(Options.ENABLE_UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        self._configuration.set(Options.ENABLE_UNALIGNED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        return self.enable_unaligned_checkpoints(False)

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._configuration.get(Options.FORCE_UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        self._configuration.set(Options.FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return self._configuration.get(Options.ALIGNED_CHECKPOINT_TIMEOUT)

    def set_aligned_checkpoint_timeout(self, aligned_checkpoint_timeout: Duration | int) -> CheckpointConfig:
        self._configuration.set(Options.ALIGNED_CHECKPOINT_TIMEOUT, aligned_checkpoint_timeout)
        return self

    get_alignment_timeout = get_aligned_checkpoint_timeout
    set_alignment_timeout = set_aligned_checkpoint_timeout

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        storage.apply_to(self._configuration)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str | Path) -> CheckpointConfig:
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))
