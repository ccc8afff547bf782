"""Defines the interface of the environment that streams use, and checks its options."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Protocol

from penstock.common.configuration import Configuration, OptionWarning
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.options import CheckpointingOptions, OptionError, StateBackendOptions
from penstock.common.typeinfo import TypeInformation
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind

DEFAULT_JOB_NAME = "Penstock Streaming Job"


class Environment(Protocol):
    """Defines the part of `StreamExecutionEnvironment` that its streams use."""

    def get_configuration(self) -> Configuration: ...

    def get_parallelism(self) -> int: ...

    def execute(self, job_name: str | None = None) -> JobExecutionResult: ...

    def execute_async(self, job_name: str | None = None) -> JobClient: ...

    @property
    def _graph(self) -> LogicalGraph: ...

    def _graph_with(self, inputs: list[Input]) -> LogicalGraph: ...

    def _add_node(
        self, kind: OperatorKind, name: str, function: Any, inputs: list[Input], output_type: TypeInformation | None
    ) -> Node: ...


def check_state_backend(configuration: Configuration) -> None:
    """Check that the state backend's libraries are installed here. Slots check their own."""
    option = StateBackendOptions.STATE_BACKEND
    if configuration.get(option) == "rocksdb" and importlib.util.find_spec("rocksdict") is None:
        raise OptionError(
            f"{option.key}: rocksdb needs the package rocksdict: pip install 'penstock[rocksdb]', here and wherever "
            "the slots run",
            option.key,
        )


def check_configuration(given: Any, method: str) -> None:
    """Check the argument of a method that takes options. Raises TypeError."""
    if not isinstance(given, Configuration):
        raise TypeError(
            f"{method} takes a Configuration, e.g. Configuration({{'execution.checkpointing.interval': '1 s'}}); got a "
            f"{type(given).__name__}"
        )


def validate(configuration: Configuration) -> None:
    """Check every option, and show each warning about options even if it was shown before."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", OptionWarning)
        configuration.validate()


def warn_of_unused_directory(configuration: Configuration) -> None:
    """Warn of a directory of checkpoints without an interval. Called when the job is executed.

    Without this order, a directory of the command line would be warned of before the program calls
    `enable_checkpointing()`.
    """
    directory, interval = CheckpointingOptions.CHECKPOINTS_DIRECTORY, CheckpointingOptions.CHECKPOINTING_INTERVAL
    if configuration.get(directory) is None or configuration.get(interval) is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("always", OptionWarning)
        warnings.warn(
            f"{directory.key} is set and {interval.key} is not: the job takes no checkpoints, and starts from its "
            f"beginning after a failure. Set an interval, e.g. env.enable_checkpointing(10_000)",
            OptionWarning,
            stacklevel=4,
        )
