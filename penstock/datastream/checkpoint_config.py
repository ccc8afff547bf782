"""Defines CheckpointConfig, PyFlink's getters and setters of the options `execution.checkpointing.*`."""

from __future__ import annotations

from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions as Options
from penstock.common.options import OptionError
from penstock.common.options.modes import CheckpointingMode, ExternalizedCheckpointRetention
from penstock.common.time import Duration
from penstock.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage

ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention
"""The name of this enumeration in Flink 1.x."""


class CheckpointConfig:
    """Reads and sets the options `execution.checkpointing.*` by PyFlink's methods.

    `env.get_checkpoint_config()` returns one.

    Times are milliseconds. Setters raise `OptionError` at once for an impossible value, and return the object itself.

    Example:
        env.enable_checkpointing(10_000)
        config = env.get_checkpoint_config()
        config.enable_unaligned_checkpoints().set_aligned_checkpoint_timeout(Duration.of_seconds(1))
    """

    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 10 * 60 * 1000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Return True if an interval was set, so that checkpoints are taken."""
        return self._configuration.get(Options.CHECKPOINTING_INTERVAL) is not None

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self._configuration.get(Options.CHECKPOINTING_CONSISTENCY_MODE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the guarantee of checkpoints. AT_LEAST_ONCE runs as EXACTLY_ONCE.

        Args:
            checkpointing_mode: The mode.
        """
        self._configuration.set(Options.CHECKPOINTING_CONSISTENCY_MODE, checkpointing_mode)
        return self

    get_checkpointing_consistency_mode = get_checkpointing_mode
    set_checkpointing_consistency_mode = set_checkpointing_mode

    def get_checkpoint_interval(self) -> int:
        """Return the interval in milliseconds; -1 if no checkpoints are taken."""
        interval: Duration | None = self._configuration.get(Options.CHECKPOINTING_INTERVAL)
        return -1 if interval is None else interval.to_millis()

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time between the triggers of two checkpoints.

        Args:
            checkpoint_interval: Milliseconds, at least 10.

        Raises:
            OptionError: The interval is too short.
            TypeError: The interval is no number.
        """
        if not isinstance(checkpoint_interval, int | float):
            raise TypeError(
                f"the interval of checkpoints is a number of milliseconds, e.g. 1000; got {checkpoint_interval!r}"
            )
        if not checkpoint_interval > 0:
            raise OptionError(
                f"{Options.CHECKPOINTING_INTERVAL.key}: {checkpoint_interval} is refused: it must be at least 10 ms",
                Options.CHECKPOINTING_INTERVAL.key,
            )
        self._configuration.set(Options.CHECKPOINTING_INTERVAL, checkpoint_interval)
        return self

    def get_checkpoint_timeout(self) -> int:
        """Return the timeout of a checkpoint in milliseconds."""
        return self._configuration.get(Options.CHECKPOINTING_TIMEOUT).to_millis()

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time after which a checkpoint that has not completed is aborted.

        Args:
            checkpoint_timeout: Milliseconds, at least 10.
        """
        self._configuration.set(Options.CHECKPOINTING_TIMEOUT, checkpoint_timeout)
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the shortest pause between two checkpoints in milliseconds."""
        return self._configuration.get(Options.MIN_PAUSE_BETWEEN_CHECKPOINTS).to_millis()

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the shortest time from the end of a checkpoint to the trigger of the next periodic one.

        Args:
            min_pause_between_checkpoints: Milliseconds.
        """
        self._configuration.set(Options.MIN_PAUSE_BETWEEN_CHECKPOINTS, min_pause_between_checkpoints)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return the maximum number of checkpoints in progress at once."""
        return self._configuration.get(Options.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set the maximum number of checkpoints in progress at once. The default is 1; more are for slow storage.

        With a minimum pause there is one, whatever is set here.

        Args:
            max_concurrent_checkpoints: The number.
        """
        self._configuration.set(Options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return the number of consecutive checkpoint failures to tolerate; the next one restarts the job."""
        return self._configuration.get(Options.TOLERABLE_FAILURE_NUMBER)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Set the number of consecutive checkpoint failures to tolerate; the next one restarts the job. Default: 0.

        Args:
            tolerable_checkpoint_failure_number: The number.
        """
        self._configuration.set(Options.TOLERABLE_FAILURE_NUMBER, tolerable_checkpoint_failure_number)
        return self

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return True if the first checkpoint that fails makes the job restart."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Choose whether the first checkpoint that fails makes the job restart, as Flink 1.x does.

        Args:
            fail_on_checkpointing_errors: False: any number of checkpoints may fail.

        Returns:
            This object.
        """
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Set which checkpoints are kept when the job ends.

        Flink 1.x has this name for `set_externalized_checkpoint_retention`.

        Args:
            cleanup_mode: What is left.

        Returns:
            This object.
        """
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set which checkpoints are kept when the job ends.

        Args:
            retention_mode: Which checkpoints are kept.
        """
        self._configuration.set(Options.EXTERNALIZED_CHECKPOINT_RETENTION, retention_mode)
        return self

    set_externalized_checkpoint_cleanup = set_externalized_checkpoint_retention

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return which checkpoints are kept when the job ends."""
        return self._configuration.get(Options.EXTERNALIZED_CHECKPOINT_RETENTION)

    get_externalized_checkpoint_cleanup = get_externalized_checkpoint_retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return True if a retention was set."""
        return (
            self.get_externalized_checkpoint_retention()
            is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return True if checkpoints may be unaligned."""
        return self._configuration.get(Options.ENABLE_UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake data, so that backpressure does not delay checkpoints.

        The overtaken data is written with the checkpoint. With `set_aligned_checkpoint_timeout` only checkpoints that
        take longer are unaligned.

        Args:
            enabled: False: checkpoints are aligned.
        """
        self._configuration.set(Options.ENABLE_UNALIGNED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Keep barriers behind the data that was sent before them, the default."""
        return self.enable_unaligned_checkpoints(False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the value of `set_force_unaligned_checkpoints`."""
        return self._configuration.get(Options.FORCE_UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accept Flink's setting. It has no effect: every kind of edge supports unaligned checkpoints here.

        Args:
            force_unaligned_checkpoints: The value.
        """
        self._configuration.set(Options.FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return the time for which a checkpoint stays aligned if unaligned checkpoints are enabled."""
        return self._configuration.get(Options.ALIGNED_CHECKPOINT_TIMEOUT)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration | int) -> CheckpointConfig:
        """Set the time from its trigger after which a checkpoint turns unaligned, if these are enabled.

        Args:
            alignment_timeout: A `Duration`, or milliseconds. 0, the default: at once.
        """
        self._configuration.set(Options.ALIGNED_CHECKPOINT_TIMEOUT, alignment_timeout)
        return self

    get_alignment_timeout = get_aligned_checkpoint_timeout
    set_alignment_timeout = set_aligned_checkpoint_timeout

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set the storage of checkpoints.

        Args:
            storage: A `FileSystemCheckpointStorage` or `JobManagerCheckpointStorage`.
        """
        storage.apply_to(self._configuration)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str | Path) -> CheckpointConfig:
        """Write checkpoints to files.

        Args:
            checkpoint_path: A directory that all slots see: a local path or a file:// URI. Each job has a directory in
                it.

        Returns:
            This object.
        """
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))
