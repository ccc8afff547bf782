"""Gives pytest the fixture `penstock_harness`. pytest loads this file itself, so it imports nothing before a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import Harness


@pytest.fixture
def penstock_harness() -> Iterator[Harness]:
    """Yield a `penstock.testing.Harness`, which is closed after the test."""
    from penstock.testing import Harness

    with Harness() as harness:
        yield harness
