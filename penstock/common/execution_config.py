"""Defines ExecutionConfig, PyFlink's getters and setters of a job's options."""

from __future__ import annotations

from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.missing_names import AdvisesOnMissing
from penstock.common.options import CheckpointingOptions, ExecutionOptions, ParallelismOptions, PipelineOptions
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

    # ---- the job's end and its snapshots -------------------------------------------------------------------------

    def get_task_cancellation_timeout(self) -> int:
        """Return the time that user code may take to return when its job ends, in milliseconds."""
        return self._configuration.get(ExecutionOptions.TASK_CANCELLATION_TIMEOUT).to_millis()

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Set the time that user code may take to return when its job ends (`task.cancellation.timeout`).

        Args:
            timeout: Milliseconds. After that the process is killed.
        """
        self._configuration.set(ExecutionOptions.TASK_CANCELLATION_TIMEOUT, timeout)
        return self

    def is_use_snapshot_compression(self) -> bool:
        """Return True if the files of checkpoints are compressed."""
        return self._configuration.get(CheckpointingOptions.SNAPSHOT_COMPRESSION) != "none"

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Choose whether the files of checkpoints are compressed (`execution.checkpointing.snapshot-compression`).

        Args:
            use_snapshot_compression: True to compress them.
        """
        self._configuration.set(CheckpointingOptions.SNAPSHOT_COMPRESSION, use_snapshot_compression)
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Give operators without a uid an id of their place in the program, the default."""
        self._configuration.set(PipelineOptions.AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse a job with an operator that has no `uid(...)` (`pipeline.auto-generate-uids`).

        Uids let a checkpoint be restored after the program has changed.
        """
        self._configuration.set(PipelineOptions.AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return True if operators may be without a uid."""
        return self._configuration.get(PipelineOptions.AUTO_GENERATE_UIDS)

    # ---- settings of Flink's JVM -----------------------------------------------------------------------------------

    def get_task_cancellation_interval(self) -> int:
        """Return the time that was set by `set_task_cancellation_interval`, in milliseconds."""
        return self._configuration.get_integer("task.cancellation.interval", 30_000)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accept the pause between two interrupts of a Java task; there are none here. The job's start warns of it.

        Args:
            interval: Milliseconds.
        """
        self._configuration.set("task.cancellation.interval", interval)
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return the time that was set by `set_latency_tracking_interval`, in milliseconds; 0 by default."""
        return self._configuration.get_integer("metrics.latency.interval", 0)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accept the interval of latency markers; there are none here. The job's start warns of it.

        Args:
            interval: Milliseconds.
        """
        self._configuration.set("metrics.latency.interval", interval)
        return self

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Do nothing: Python's functions are pickled with the variables that they use, and no others."""
        self._configuration.remove_config("pipeline.closure-cleaner-level")
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accept the setting, which has no effect on Python's functions. The job's start warns of it."""
        self._configuration.set("pipeline.closure-cleaner-level", "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Return False after `disable_closure_cleaner`."""
        return self._configuration.get_string("pipeline.closure-cleaner-level", "RECURSIVE") != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accept a setting of Java's serialization: rows have types here, or are pickled. The job's start warns."""
        return self._set_flag("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Take `enable_force_kryo` back."""
        return self._set_flag("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """Return True after `enable_force_kryo`."""
        return self._configuration.get_boolean("pipeline.force-kryo", False)

    def enable_force_avro(self) -> ExecutionConfig:
        """Accept a setting of Java's serialization: rows have types here, or are pickled. The job's start warns."""
        return self._set_flag("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Take `enable_force_avro` back."""
        return self._set_flag("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """Return True after `enable_force_avro`."""
        return self._configuration.get_boolean("pipeline.force-avro", False)

    def enable_generic_types(self) -> ExecutionConfig:
        """Take `disable_generic_types` back."""
        return self._set_flag("pipeline.generic-types", False)

    def disable_generic_types(self) -> ExecutionConfig:
        """Accept a setting of Java's serialization. As in PyFlink it leaves pickled rows alone."""
        self._configuration.set("pipeline.generic-types", False)
        return self

    def has_generic_types_disabled(self) -> bool:
        """Return True after `disable_generic_types`."""
        return self._configuration.contains_key("pipeline.generic-types")

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return an empty dict: there is no Kryo here."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return an empty list: there is no Kryo here."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return an empty list: there are no Java classes here."""
        return []

    def _set_flag(self, key: str, enabled: bool) -> ExecutionConfig:
        """Set a flag that is off by default, so that one that is off warns of nothing."""
        self._configuration.remove_config(key)
        if enabled:
            self._configuration.set(key, True)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)
