"""A service that fails when a row is first asked for, in each attempt of a job."""

from __future__ import annotations

import asyncio
from collections import Counter

asked: Counter[int] = Counter()


async def first_calls_fail(value: int) -> list[int]:
    asked[value] += 1
    await asyncio.sleep(0.01)
    if asked[value] % 2:
        raise OSError("no answer yet")
    return [value]
