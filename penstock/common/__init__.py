"""Offers the names that programs import from `pyflink.common`."""

from typing import TYPE_CHECKING

from penstock.common.completable_future import CompletableFuture
from penstock.common.config_options import ConfigOptions
from penstock.common.configuration import Configuration, OptionWarning
from penstock.common.execution_config import ExecutionConfig
from penstock.common.input_dependency_constraint import InputDependencyConstraint
from penstock.common.job_client import JobClient
from penstock.common.job_execution import JobExecutionError
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.missing_names import advising_getattr, install_module_advice
from penstock.common.options.modes import RuntimeExecutionMode
from penstock.common.options.option import ConfigOption, OptionError
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.row_types.row import Row, RowKind
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringEncoder,
    SimpleStringSchema,
)
from penstock.common.serializer import TypeSerializer
from penstock.common.time import Duration, Instant, Time
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.common.types import Types
from penstock.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper", "ByteArraySchema", "CompletableFuture", "ConfigOption", "ConfigOptions",
    "Configuration", "DeserializationSchema", "Duration", "Encoder", "ExecutionConfig", "InputDependencyConstraint",
    "Instant", "JobClient", "JobExecutionError", "JobExecutionResult", "JobID", "JobStatus", "OptionError",
    "OptionWarning", "RestartStrategies", "RestartStrategyConfiguration", "Row", "RowKind", "RowTypeError",
    "RuntimeExecutionMode", "SerializationSchema", "SimpleStringEncoder", "SimpleStringSchema", "Time",
    "TimestampAssigner", "TypeInformation", "TypeSerializer", "Types",
    "Watermark", "WatermarkGenerator", "WatermarkOutput", "WatermarkStrategy",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
install_module_advice()
