"""Finds the executor of `execution.target`, which runs a job graph, and checks sources and sinks before."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Callable, Protocol

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.options import DeploymentOptions, OptionError
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import OperatorKind

ENTRY_POINT_GROUP = "penstock.executors"

# An installed package says this itself; a source tree on the path does not.
_BUILT_IN = {"spark": "penstock.spark.executor:SparkExecutor"}

_registered: dict[str, Callable[[], Executor]] = {}


class Executor(Protocol):
    """Runs job graphs. A new one is made, without arguments, for each submission."""

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        """Start a job and return. Raises every error that can be found before the job starts.

        Args:
            graph: The job.
            configuration: Its options.

        Returns:
            A client of the job.
        """


def client_of_ended_job(executor: Executor, graph: JobGraph, configuration: Configuration) -> JobClient | None:
    """Return the client of a job that every start resumes and that has ended for good; None if there is none.

    Asked before sources and sinks are checked: a start of a finished job needs no broker. An executor may have a method
    `find_ended(graph, configuration)` for it.
    """
    find_ended = getattr(executor, "find_ended", None)
    client: JobClient | None = None if find_ended is None else find_ended(graph, configuration)
    return client


class DataFrames(Protocol):
    """Defines the attribute `data_frames` of executors that can read and write Spark's DataFrames.

    Outside of them a DataFrame is of type `Any`.
    """

    def source(self, frame: Any, name: str) -> Any:
        """Make a source of a DataFrame's rows.

        Raises TypeError if it is none, or has a column of a type that is not ours.
        """

    def sink(self, path: str | None) -> Any:
        """Make a sink whose rows `read` returns. `path` None: below the job's directory."""

    def read(self, sink: Any, spark: Any) -> Any:
        """Return the committed rows in the session `spark` (None: the active one). Called after the job's end."""


def register_executor(name: str, factory: Callable[[], Executor]) -> None:
    """Make `execution.target = name` known in this process. It takes precedence over installed executors.

    Args:
        name: The name.
        factory: Makes the executor.
    """
    _registered[name] = factory


def find_executor(name: str) -> Executor:
    """Make the executor of this name. Raises `OptionError`, which lists the executors there are."""
    if name in _registered:
        return _registered[name]()
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name in installed:
        return _made(installed[name].load())
    if name in _BUILT_IN:
        module_name, _, attribute = _BUILT_IN[name].partition(":")
        return _made(getattr(__import__(module_name, fromlist=[attribute]), attribute))
    known = ", ".join(sorted({*_registered, *installed, *_BUILT_IN}))
    key = DeploymentOptions.TARGET.key
    raise OptionError(f"{key}: there is no executor {name!r}; there are: {known}", key)


def find_data_frames(name: str) -> DataFrames:
    """Return the `data_frames` of an executor. Raises `OptionError` if it has none."""
    frames: DataFrames | None = getattr(find_executor(name), "data_frames", None)
    if frames is None:
        key = DeploymentOptions.TARGET.key
        raise OptionError(f"{key}: the executor {name!r} knows no Spark DataFrames; 'spark' does", key)
    return frames


def _made(factory: Callable[[], Any]) -> Executor:
    executor: Executor = factory()
    return executor


def configure_connector(connector: Any, configuration: Configuration) -> None:
    """Pass the options to a source or sink; one that is no subclass of ours may do without."""
    configure = getattr(connector, "configure", None)
    if configure is not None:
        configure(configuration)


def configure_connectors(graph: JobGraph, configuration: Configuration) -> None:
    """Pass the options to every source and sink."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
                configure_connector(operator.function, configuration)


def check_connectors(graph: JobGraph, configuration: Configuration) -> None:
    """Validate every source and sink before the job starts; their errors name file or row."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.kind is OperatorKind.SOURCE:
                operator.function.validate()
            elif operator.kind is OperatorKind.SINK:
                operator.function.validate(operator.input_type)
