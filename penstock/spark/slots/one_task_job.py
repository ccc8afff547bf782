"""Runs the Spark job of a slot, which has one task, in the way that the session's settings allow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from penstock.spark.session import Substrate

_python_lock = threading.Lock()
"""Held while a task is built with the Python of its job, which PySpark reads from the context of all jobs."""


def run_task(substrate: Substrate, slot: int, body: Callable[[Any], Any]) -> None:
    """Run a Spark job with one task that calls `body`; return or raise as the job does."""
    if _kills_idle_workers(substrate):
        _run_sql_task(substrate, slot, body)
        return
    task = substrate.context.parallelize([slot], 1).mapPartitions(body)
    with _python_of(substrate):
        task._jrdd  # noqa: B018  PySpark builds the task here, and keeps it
    task.collect()


@contextmanager
def _python_of(substrate: Substrate) -> Iterator[None]:
    """Let the context name the job's own Python, if it has one."""
    if substrate.python is None:
        yield
        return
    with _python_lock:
        context = substrate.context
        before = context.pythonExec
        context.pythonExec = substrate.python
        try:
            yield
        finally:
            context.pythonExec = before


def _kills_idle_workers(substrate: Substrate) -> bool:
    """Return whether Spark ends a Python worker that yields nothing. For tasks of RDDs only the session's settings can
    change that; for SQL tasks a session of its own can.
    """
    conf = substrate.context.getConf()
    idle_s = conf.get("spark.python.worker.idleTimeoutSeconds", "0") or "0"
    return idle_s not in ("0", "0s") and (conf.get("spark.python.worker.killOnIdleTimeout") or "").lower() == "true"


def _run_sql_task(substrate: Substrate, slot: int, body: Callable[[Any], Any]) -> None:
    session = substrate.new_session()
    session.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "0")
    with _python_of(substrate):
        rows = session.range(slot, slot + 1, 1, 1).mapInArrow(body, "id long")
    rows.collect()
