"""Defines ExecutionConfig, PyFlink's getters and setters of a job's options."""

from __future__ import annotations

from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.missing_names import AdvisesOnMissing
from penstock.common.options import ParallelismOptions, PipelineOptions
from penstock.common.restart_strategy import RestartStrategyConfiguration


class ExecutionConfig(AdvisesOnMissing):
    """Reads and sets options of a job by PyFlink's methods. `env.get_config()` returns one."""

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that have none of their own."""
        return self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism of operators that have none of their own (`parallelism.default`).

        Args:
            parallelism: The number of subtasks, at least 1.
        """
        self._configuration.set(ParallelismOptions.DEFAULT_PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the max parallelism, the number of key groups; -1 if it is derived from the parallelism."""
        return self._configuration.get(PipelineOptions.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the max parallelism, the number of key groups (`pipeline.max-parallelism`).

        It cannot change in a restore.

        Args:
            max_parallelism: The number of key groups.
        """
        self._configuration.set(PipelineOptions.MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the interval of `WatermarkGenerator.on_periodic_emit` in milliseconds."""
        return self._configuration.get(PipelineOptions.AUTO_WATERMARK_INTERVAL).to_millis()

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set the interval between generated watermarks (`pipeline.auto-watermark-interval`).

        Raises `OptionError` if it is negative.

        Args:
            interval: Milliseconds. 0: only when a generator emits a watermark for a row.
        """
        self._configuration.set(PipelineOptions.AUTO_WATERMARK_INTERVAL, interval)
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        """Pass mutable rows from one chained function to the next without a copy (`pipeline.object-reuse`).

        It saves time, and a function that changes a row which another one still holds changes it for both.
        """
        self._configuration.set(PipelineOptions.OBJECT_REUSE, True)
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copy mutable rows between chained functions, the default."""
        self._configuration.set(PipelineOptions.OBJECT_REUSE, False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Return True if mutable rows are passed on without a copy."""
        return self._configuration.get(PipelineOptions.OBJECT_REUSE)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, Any]) -> ExecutionConfig:
        """Set parameters that functions read by `RuntimeContext.get_job_parameter`, as strings.

        Args:
            global_job_parameters_dict: The parameters by name.

        Raises:
            ValueError: A name or value contains a comma or colon.
        """
        for key, value in global_job_parameters_dict.items():
            if any(c in f"{key}{value}" for c in ",:"):
                raise ValueError(f"a global job parameter holds no ',' or ':': {key}={value}")
        self._configuration.set(PipelineOptions.GLOBAL_JOB_PARAMETERS, global_job_parameters_dict)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that functions can read, by name."""
        return self._configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS) or {}

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> ExecutionConfig:
        """Set the restart strategy.

        Args:
            restart_strategy_configuration: Made by `RestartStrategies`.
        """
        restart_strategy_configuration.apply_to(self._configuration)
        return self
