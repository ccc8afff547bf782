"""Holds the job's present state: the values that all parts of the JobMaster read."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_settings import JobSettings
from penstock.jobmaster.restore import RestorePoint


@dataclass
class CurrentJob:
    """Holds a job's constants (the first four), and its variables."""

    identity: JobIdentity
    incarnation: str
    configuration: Configuration
    settings: JobSettings
    graph: JobGraph
    """The graph that runs, or that the next generation runs. Only `JobMaster.adopt` replaces it."""
    restore_point: RestorePoint | None = None
    """Names what the next generation restores: the newest checkpoint, or what the job starts from."""
    holds_sources: bool = False
    """True in the first of two steps of a restore: the job's sources emit nothing."""
