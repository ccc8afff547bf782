"""Provides a registry of its own for each test, and a job that is served on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.rest.hosting import JobHosting
from penstock.rest.job_registry import RunningJob, running_jobs
from tests.unit.rest.running import DrivenClient


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "registry"
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(directory))
    return directory


@dataclass
class Hosted:
    client: DrivenClient
    hosting: JobHosting
    job: RunningJob
    directory: Path


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    """A job that is served on loopback, on any port, and registered."""
    client, warned = DrivenClient(), list[str]()
    hosting = JobHosting(Configuration({"execution.checkpointing.interval": "1 s"}))
    directory = tmp_path / "checkpoints" / client.current.job_id
    try:
        hosting.start(client, str(directory), warned.append)
        assert not warned
        (job,) = running_jobs()
        yield Hosted(client, hosting, job, directory)
    finally:
        hosting.end()
