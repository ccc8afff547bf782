"""Defines JobExecutionResult."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.common.job_id import JobID


@dataclass(frozen=True)
class JobExecutionResult:
    """Holds the result of a finished job: `net_runtime_ms` from its submission to its end, `accumulators` by name."""

    job_id: JobID
    net_runtime_ms: int
    accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return the time from the job's submission to its end, in milliseconds."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the result of an accumulator. Raises KeyError if there is none of this name.

        The counters that functions make (`RuntimeContext.get_metrics_group().counter(name)`) are accumulators.

        Args:
            accumulator_name: Its name; with its group's, if it is in one: "group.name".

        Returns:
            The result.
        """
        return self.accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the results of all accumulators by name."""
        return dict(self.accumulators)

    def is_job_execution_result(self) -> bool:
        """Return True: the job has ended. PyFlink's results of detached jobs return False."""
        return True

    def __str__(self) -> str:
        return (
            f"Program execution finished\nJob with JobID {self.job_id} has finished.\n"
            f"Job Runtime: {self.net_runtime_ms} ms"
        )
