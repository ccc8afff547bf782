"""ExecutionConfig: PyFlink's setters over the options of a job."""

from __future__ import annotations

from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import ParallelismOptions, PipelineOptions
from penstock.common.restart_strategy import RestartStrategyConfiguration


class ExecutionConfig:
    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_parallelism(self) -> int:
        return self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        self._configuration.set(ParallelismOptions.DEFAULT_PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1: derived from the parallelism."""
        return self._configuration.get(PipelineOptions.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        self._configuration.set(PipelineOptions.MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """In milliseconds."""
        return self._configuration.get(PipelineOptions.AUTO_WATERMARK_INTERVAL).to_millis()

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """How often watermarks are generated, in milliseconds; 0: only where a generator emits one for a row.

        Raises `OptionError` for less than 0."""
        self._configuration.set(PipelineOptions.AUTO_WATERMARK_INTERVAL, interval)
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        self._configuration.set(PipelineOptions.OBJECT_REUSE, True)
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        self._configuration.set(PipelineOptions.OBJECT_REUSE, False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._configuration.get(PipelineOptions.OBJECT_REUSE)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, Any]) -> ExecutionConfig:
        """Functions read them by `RuntimeContext.get_job_parameter`, as strings."""
        for key, value in global_job_parameters_dict.items():
            if any(c in f"{key}{value}" for c in ",:"):
                raise ValueError(f"a global job parameter holds no ',' or ':': {key}={value}")
        self._configuration.set(PipelineOptions.GLOBAL_JOB_PARAMETERS, global_job_parameters_dict)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        return self._configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS) or {}

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> ExecutionConfig:
        restart_strategy_configuration.apply_to(self._configuration)
        return self
