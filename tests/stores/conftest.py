"""Starts each object store once for all tests of a session. One that cannot be had is loud, and a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.buckets.servers import BUCKET
from tools.object_stores import SERVERS, Server, ServerUnavailable


def started(name: str, directory: Path) -> Server:
    """Start a server with a bucket. Without it the test is skipped, loudly; in CI it fails."""
    server = SERVERS[name](directory)
    try:
        server.start()
    except ServerUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NO {name.upper()}, SO IT IS NOT TESTED: {error}")
    server.make_bucket(BUCKET)
    return server


@pytest.fixture(scope="session", params=["seaweedfs", "azurite", "hdfs"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started(request.param, tmp_path_factory.mktemp(request.param))
    yield running
    running.stop()


@pytest.fixture
def weed(tmp_path: Path) -> Iterator[Server]:
    running = started("seaweedfs", tmp_path / "seaweedfs")
    yield running
    running.stop()
