"""Provides an environment whose jobs end at once: tests of this folder look at the graph that it was handed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from penstock.common import CompletableFuture, Configuration, JobExecutionResult, JobID, JobStatus
from penstock.datastream import JobClient, StreamExecutionEnvironment, register_executor
from penstock.datastream._streams import execution
from penstock.graph.job_graph import JobGraph


class FinishedJob(JobClient):
    def __init__(self, outcome: BaseException | None) -> None:
        self.job_id = JobID.generate()
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        if outcome is None:
            self._result.set_result(JobExecutionResult(self.job_id, 1))
        else:
            self._result.set_exception(outcome)

    def get_job_id(self) -> JobID:
        return self.job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(JobStatus.FINISHED)

    def cancel(self) -> CompletableFuture[None]:
        return CompletableFuture.completed(None)

    def trigger_savepoint(
        self, savepoint_directory: str | None = None, *, aligned: bool | None = None
    ) -> CompletableFuture[str]:
        raise NotImplementedError

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        raise NotImplementedError

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        aligned: bool | None = None,
    ) -> CompletableFuture[str]:
        raise NotImplementedError

    def trigger_checkpoint(self) -> CompletableFuture[None]:
        raise NotImplementedError

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self._result

    def report(self) -> Any:
        return None


class InstantExecutor:
    """Keeps what it is given; its jobs end at once, in the way that `outcome` says."""

    def __init__(self) -> None:
        self.submitted: list[tuple[JobGraph, Configuration]] = []
        self.outcome: BaseException | None = None

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        self.submitted.append((graph, configuration))
        return FinishedJob(self.outcome)


@pytest.fixture
def executor() -> Iterator[InstantExecutor]:
    found = InstantExecutor()
    register_executor("instant", lambda: found)
    yield found
    del execution._registered["instant"]


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, executor: InstantExecutor) -> StreamExecutionEnvironment:
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
    monkeypatch.delenv("PENSTOCK_DYNAMIC_OPTIONS", raising=False)
    configuration = Configuration({"execution.target": "instant", "parallelism.default": 2})
    return StreamExecutionEnvironment.get_execution_environment(configuration)
