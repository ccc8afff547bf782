"""Runs the Spark job of a slot, which has one task, in the way that the session's settings allow."""

from __future__ import annotations

from typing import Any, Callable

from penstock.spark.session import Substrate


def run_task(substrate: Substrate, slot: int, body: Callable[[Any], Any]) -> None:
    """Run a Spark job with one task that calls `body`; return or raise as the job does."""
    if _kills_idle_workers(substrate):
        _run_sql_task(substrate, slot, body)
    else:
        substrate.context.parallelize([slot], 1).mapPartitions(body).collect()


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
    session.range(slot, slot + 1, 1, 1).mapInArrow(body, "id long").collect()
