"""Makes the backends of the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.backends import KINDS, Backends


@pytest.fixture(params=KINDS)
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backends]:
    made = Backends(request.param, tmp_path)
    yield made
    made.close()
    assert not list(tmp_path.iterdir()), "a backend has left files behind"
