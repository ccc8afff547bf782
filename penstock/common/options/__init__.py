"""Defines all options: Flink's keys, types, units and defaults, and a few of Penstock's own."""

from penstock.common.options.checkpointing import CheckpointingOptions, StateBackendOptions, StateRecoveryOptions
from penstock.common.options.cluster import (
    DeploymentOptions,
    HeartbeatOptions,
    JobManagerOptions,
    NetworkOptions,
    ResourceManagerOptions,
    RestOptions,
    SlotOptions,
    TaskManagerOptions,
    WebOptions,
)
from penstock.common.options.high_availability import HighAvailabilityOptions
from penstock.common.options.job import ExecutionOptions, ParallelismOptions, PipelineOptions, PythonOptions
from penstock.common.options.option import ConfigOption, OptionError
from penstock.common.options.penstock import PenstockOptions
from penstock.common.options.registry import OPTIONS, option_table
from penstock.common.options.restart import RestartStrategyOptions
from penstock.common.options.rocksdb import CoreOptions, RocksDBOptions
from penstock.common.options.rocksdb_metrics import RocksDBNativeMetricOptions
from penstock.common.options.stores import ObjectStoreOptions

__all__ = [
    "CheckpointingOptions", "ConfigOption", "CoreOptions", "DeploymentOptions", "ExecutionOptions",
    "HeartbeatOptions", "HighAvailabilityOptions", "JobManagerOptions", "NetworkOptions", "OPTIONS",
    "ObjectStoreOptions", "OptionError", "ParallelismOptions", "PenstockOptions", "PipelineOptions",
    "PythonOptions", "ResourceManagerOptions", "RestOptions", "RestartStrategyOptions",
    "RocksDBNativeMetricOptions", "RocksDBOptions", "SlotOptions", "StateBackendOptions", "StateRecoveryOptions",
    "TaskManagerOptions", "WebOptions", "option_table",
]  # fmt: skip
