"""Explains why a slot's Spark job has ended, from Spark's error: names the Python error, its place and the way out."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from py4j.protocol import Py4JNetworkError

from penstock.spark.process.slot_task import SEND_ENVIRONMENT
from penstock.spark.slots.task_placement import TaskPlace

FRUITLESS_MAX = 4
"""The number of submissions in a row that have ended without registering, after which a slot will never register."""
HOPELESS_MAX = 2
"""The same for failures that the same executor would repeat: another executor may have what this one lacks."""

log = logging.getLogger(__name__)

_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH\][^:]*: (\d+\.\d+) than that in driver: (\d+\.\d+)")
_LACKS = "on this executor lacks"


def cause(error: Exception, places: Sequence[TaskPlace] = ()) -> str:
    """Return the cause in one line or a few. The frames, which are ours and Spark's, tell a user nothing and are left
    out. `places`: where its task was tried.
    """
    if isinstance(error, (OSError, Py4JNetworkError)):
        return f"Spark's own process does not answer; it was ended, or has crashed ({error})"
    text = str(error)
    log.debug("%s", text)
    tried = [place for place in places if place.executor != "driver"]
    where = f" (executor {tried[-1].executor} on {tried[-1].host})" if tried else ""
    versions = _VERSIONS.search(text)
    if versions is not None:
        theirs, ours = versions.groups()
        return (
            f"the executor's Python is {theirs}, the driver's is {ours}{where}; functions can only be shipped between "
            f"equal minor versions. Name the other interpreter by PYSPARK_PYTHON, or {SEND_ENVIRONMENT}"
        )
    return _raised(text, type(error).__name__) + where


def is_hopeless(detail: str) -> bool:
    """Return whether the same executor will fail the same way again, however often it is tried."""
    return _LACKS in detail or "equal minor versions" in detail


def is_final(detail: str, fruitless: int, has_run: bool) -> bool:
    """Return whether a slot that could not be started ends the job at once.

    Args:
        detail: Why the newest submission has ended.
        fruitless: How many submissions in a row ended without having registered.
        has_run: The job has run before. Its slots could be started then, so they are tried until
            `slot.request.timeout`, and the restart strategy decides.
    """
    if is_hopeless(detail):
        return fruitless >= HOPELESS_MAX
    return fruitless >= FRUITLESS_MAX and not has_run


def _raised(text: str, kind: str) -> str:
    _, traceback, rest = text.partition("Traceback (most recent call last)")
    if not traceback:
        lines = [line for line in text.splitlines() if line.strip()] or [kind]
        # Py4J's first line only says which Java method was called; what that threw follows a colon.
        return next((line[2:] for line in lines[:2] if line.startswith(": ")), lines[0])
    raised = rest.partition("\n\tat ")[0].partition("\n SQLSTATE")[0].splitlines()
    last_frame = max((i for i, line in enumerate(raised) if line.startswith("  ")), default=0)
    return "\n".join(line for line in raised[last_frame + 1 :] if line.strip()) or kind
