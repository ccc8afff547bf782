"""Holds what users ask of a running job: a savepoint, another parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.job_execution import CheckpointFailed, RescaleFailed, SavepointFailed
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import Parallelism
from penstock.protocol.driver.savepoint import Alignment

Answer = Callable[[str | SavepointFailed], None]
"""A callback that is called once: with the savepoint's directory, or with the reason why there is none."""


CheckpointAnswer = Callable[[CheckpointFailed | None], None]
"""A callback that is called once: with None when a checkpoint is triggered or queued, or with why there is none."""


@dataclass(frozen=True)
class RescaleOrder:
    """Holds what a user asks for. `answer` is called once: with None when the job runs so, or with why it does not.
    `is_own`: the adaptive scheduler asks for slots, up to those that the user has asked for. `graph`: what the job
    runs in the second step of a restore; None: `parallelism` says it.
    """

    parallelism: Parallelism
    answer: Callable[[RescaleFailed | None], None]
    reason: str = "requested"
    is_own: bool = False
    graph: JobGraph | None = None


@dataclass(frozen=True)
class SavepointOrder:
    """Holds what a user asks for. `directory`: where to make the savepoint's directory; None: the configured one."""

    answer: Answer
    directory: str | None = None
    alignment: Alignment = Alignment.CONFIGURED
    stops: bool = False
    drains: bool = False
