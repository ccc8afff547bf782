"""Provides a job's client without a job: what a test does to it is what its report and its futures say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.monitoring.report import CheckpointReport, JobReport, VertexReport

JOB_ID = "ab" * 16


def checkpoint(number: int, status: str = "completed", **more: object) -> CheckpointReport:
    done = status == "completed"
    report = CheckpointReport(
        number, status, 1_000 * number, 10.0 * number if done else None, None, False, 100 * number, 7, 200 * number, 3,
        f"/c/chk-{number}" if done else None,
    )  # fmt: skip
    return replace(report, **more)  # type: ignore[arg-type]


def report(*checkpoints: CheckpointReport, state: str = "RUNNING", name: str = "counting") -> JobReport:
    vertices = (
        VertexReport("source", 2, 0, 10, 0.0, 5.0, 0.5, 0.1),
        VertexReport("sink", 3, 10, 0, 5.0, 0.0, 0.2, 0.0, connectors=(("out", {"connector": "Kafka", "topic": "t"}),)),
    )
    completed = sum(c.status == "completed" for c in checkpoints)
    failed = sum(c.status == "failed" for c in checkpoints)
    return JobReport(JOB_ID, name, state, 0, 0, vertices, checkpoints, completed, failed, (), 2, 2)


Asked = tuple[str, bool | None, str | None, bool | None]
"""(savepoint or stop, drain, directory, aligned)."""


@dataclass
class DrivenClient(JobClient):
    """Remembers what it is asked, and answers when the test completes `futures`."""

    current: JobReport = field(default_factory=report)
    asked: list[Asked] = field(default_factory=list)
    futures: list[CompletableFuture[str]] = field(default_factory=list)
    rescales: list[tuple[int | Mapping[str, int], CompletableFuture[None]]] = field(default_factory=list)
    checkpoints: list[CompletableFuture[None]] = field(default_factory=list)
    ended: CompletableFuture[JobExecutionResult] = field(default_factory=CompletableFuture)
    cancels: int = 0

    def report(self) -> JobReport:
        return self.current

    def get_job_id(self) -> JobID:
        return JobID(self.current.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(JobStatus[self.current.state])

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self.ended

    def cancel(self) -> CompletableFuture[None]:
        self.cancels += 1
        return CompletableFuture()

    def trigger_checkpoint(self) -> CompletableFuture[None]:
        self.checkpoints.append(CompletableFuture())
        return self.checkpoints[-1]

    def trigger_savepoint(
        self, savepoint_directory: str | None = None, *, aligned: bool | None = None
    ) -> CompletableFuture[str]:
        return self._ask(("savepoint", None, savepoint_directory, aligned))

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        aligned: bool | None = None,
    ) -> CompletableFuture[str]:
        return self._ask(("stop", advance_to_end_of_event_time, savepoint_directory, aligned))

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        self.rescales.append((parallelism, CompletableFuture()))
        return self.rescales[-1][1]

    def _ask(self, asked: Asked) -> CompletableFuture[str]:
        self.asked.append(asked)
        self.futures.append(CompletableFuture())
        return self.futures[-1]
