"""Draws a third of a long list of tests each day. The simulation tests all elements of these lists in each run.

Three days test the whole list on real servers; `PENSTOCK_TEST_ALL=1` tests it at once.
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
