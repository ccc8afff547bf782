"""Starts each server of buckets once for all tests of a process; a test has a folder of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.buckets.faulty_proxy import FaultyProxy
from tests.buckets.servers import running
from tools.object_stores import Server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("moto", tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("gcs", tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session", params=["moto", "gcs"])
def server(request: pytest.FixtureRequest) -> Server:
    """Return each kind of server in turn."""
    running_server = request.getfixturevalue(request.param)
    assert isinstance(running_server, Server)
    return running_server


@pytest.fixture
def proxy(moto: Server) -> Iterator[FaultyProxy]:
    """Yield what stands between a test and moto, and answers instead of it when it is told to."""
    with FaultyProxy(moto.port) as proxy:
        yield proxy
