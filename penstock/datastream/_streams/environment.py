"""Defines the environment's interface to streams: options, the graph of operators, the start of a job."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

from penstock.common.configuration import Configuration, OptionWarning
from penstock.common.job_client import JobClient
from penstock.common.job_execution import JobExecutionResult
from penstock.common.options import (
    CheckpointingOptions,
    DeploymentOptions,
    OptionError,
    ParallelismOptions,
    PipelineOptions,
    StateBackendOptions,
)
from penstock.common.program_classes import remember_main
from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams.execution import (
    check_connectors,
    client_of_ended_job,
    configure_connectors,
    find_executor,
)
from penstock.datastream._streams.forgotten_execution import follow_environment
from penstock.datastream._streams.strategy_checks import warn_of_silence
from penstock.graph import pickling
from penstock.graph.builder import build_job_graph
from penstock.graph.describe import execution_plan
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind

DEFAULT_JOB_NAME = "Penstock Streaming Job"


class Environment:
    """Collects the operators that a program declares and submits them as a job."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._graph = LogicalGraph()
        self._ids = 0
        self._declared = follow_environment()
        self._default_parallelism = self.get_parallelism()

    def get_configuration(self) -> Configuration:
        """Return the options of the job; changes to the returned object take effect."""
        return self._configuration

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that have none of their own (`parallelism.default`)."""
        return self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)

    # ---- the graph -----------------------------------------------------------------------------------------------

    def _graph_with(self, inputs: list[Input]) -> LogicalGraph:
        """Return the graph, with the operators of `inputs` in it: they may have been declared for an earlier job."""
        for given in inputs:
            self._graph.include(given.node)
        return self._graph

    def _add_node(
        self, kind: OperatorKind, name: str, function: Any, inputs: list[Input], output_type: TypeInformation | None
    ) -> Node:
        self._keep_parallelism()
        node = self._graph.add(Node(self._ids, kind, name, function, inputs, output_type))
        self._ids += 1
        self._declared.operators += 1
        return node

    def _keep_parallelism(self) -> None:
        """Set the previous default parallelism, if it has changed, on the operators declared before the change."""
        default = self.get_parallelism()
        if default != self._default_parallelism:
            for node in self._graph.nodes:
                if node.parallelism is None:
                    node.parallelism = self._default_parallelism
            self._default_parallelism = default

    # ---- execution -----------------------------------------------------------------------------------------------

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """Build the graph of chained operators that `execute()` would run now.

        Warns (`EventTimeWarning`) of windows and event-time timers that would wait for watermarks forever.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            The job graph.
        """
        self._declared.is_used = True
        self._keep_parallelism()
        job_graph = build_job_graph(self._graph, self._configuration, self._job_name(job_name))
        warn_of_silence(self._graph)
        return job_graph

    def get_execution_plan(self) -> str:
        """Return the job graph as JSON."""
        return execution_plan(self.get_job_graph())

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the declared operators as a job and wait until it ends.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            The result of the finished job.

        Raises:
            JobExecutionError: The job failed or was cancelled. The message begins with the traceback of the user's
                function.
        """
        return self.execute_async(job_name).wait()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Submit the declared operators as a job and return at once.

        Raises every error that can be found before the job starts: options, types, functions that cannot be
        pickled, missing input files.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            A client, to observe, cancel or wait for the job.
        """
        self._declared.is_used = True
        validate(self._configuration)
        check_state_backend(self._configuration)
        graph = self.get_job_graph(job_name)
        configure_connectors(graph, self._configuration)
        executor = find_executor(self._configuration.get(DeploymentOptions.TARGET))
        client = client_of_ended_job(executor, graph, self._configuration.copy())
        if client is None:
            check_connectors(graph, self._configuration)
            remember_main()
            pickling.dumps(graph)
            client = executor.submit(graph, self._configuration.copy())
        self._graph = LogicalGraph()
        return client

    def _job_name(self, job_name: str | None) -> str:
        return job_name or self._configuration.get(PipelineOptions.NAME) or DEFAULT_JOB_NAME

    def close(self) -> None:
        """Discard the operators that were declared and not executed. Running jobs are not affected."""
        self._declared.is_used = True
        self._graph = LogicalGraph()


def check_state_backend(configuration: Configuration) -> None:
    """Check that the state backend's libraries are installed here. Slots need them, too, and name those that they
    lack."""
    option = StateBackendOptions.STATE_BACKEND
    if configuration.get(option) == "rocksdb" and importlib.util.find_spec("rocksdict") is None:
        raise OptionError(
            f"{option.key}: rocksdb needs the package rocksdict: pip install 'penstock[rocksdb]', here and wherever "
            "the slots run",
            option.key,
        )


def validate(configuration: Configuration) -> None:
    """Check every option, and show each warning about options even if it was shown before."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", OptionWarning)
        _warn_of_unused_directory(configuration)
        configuration.validate()


def _warn_of_unused_directory(configuration: Configuration) -> None:
    directory, interval = CheckpointingOptions.CHECKPOINTS_DIRECTORY, CheckpointingOptions.CHECKPOINTING_INTERVAL
    if configuration.get(directory) is not None and configuration.get(interval) is None:
        warnings.warn(
            f"{directory.key} is set and {interval.key} is not: the job takes no checkpoints, and starts from its "
            f"beginning after a failure. Set an interval, e.g. env.enable_checkpointing(10_000)",
            OptionWarning,
            stacklevel=4,
        )
