"""Defines the deployment from which a slot builds its part of a generation. It is cloudpickled, so its functions are
new copies each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.graph.job_graph import JobGraph


@dataclass(frozen=True)
class DeploymentPlan:
    """Holds the plan of one generation. `incarnation` is random per driver and part of every object's and pending
    file's name. `storage_root` is the job's directory (a local path) or None for storage in the driver's memory.
    `holds_sources`: all subtasks begin held, and sources stay so (the first of two steps of a restore).
    """

    job_id: str
    graph: JobGraph
    configuration: Configuration
    incarnation: str
    storage_root: str | None
    checkpointing: bool
    holds_sources: bool = False
