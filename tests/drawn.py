"""Draws what a run tests from lists that are long, and whose every element the simulation tests in each run.

A third of a list each day: three days test all of it. `PENSTOCK_TEST_ALL=1` tests all of it at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from typing import TypeVar

T = TypeVar("T")
DAYS = 3


def of_today(elements: Sequence[T]) -> list[T]:
    """Return each third element, beginning at today's, in their order."""
    if os.environ.get("PENSTOCK_TEST_ALL"):
        return list(elements)
    return list(elements[date.today().toordinal() % DAYS :: DAYS])
