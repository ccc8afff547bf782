"""Shares the Spark of a test process among the modules that want the same one, one after the other.

Java starts once in a process in any case, but each Spark in it starts a Python daemon of its own, and that imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.session import Substrate

ROOT = Path(__file__).resolve().parents[1]

# Said even where it is what Spark does by itself: Java remembers the settings of its first session.
USERS = {"spark.python.daemon.module": "pyspark.daemon", "spark.executorEnv.PYTHONPATH": ""}
WITH_OUR_DAEMON = {
    "spark.python.daemon.module": "penstock.spark.process.slot_daemon",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}

_shared: tuple[object, Any] | None = None


def users_session(settings: dict[str, str]) -> SparkSession:
    """A SparkSession as a user makes it, with a place for the slots of two small jobs."""

    def start() -> Any:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()

    session: SparkSession = _share(settings, start)
    return session


def own_substrate(slots: int) -> Substrate:
    """Return the session that Penstock makes where there is no session."""
    from penstock.spark.session import open_session

    substrate: Substrate = _share(("ours", slots), lambda: open_session("tests", slots))
    return substrate


def stop() -> None:
    """The context that is active, if there is one."""
    global _shared
    _shared = None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() or SparkContext._active_spark_context
    if active is not None:
        active.stop()


def _share(kind: object, start: Callable[[], Any]) -> Any:
    global _shared
    if _shared is None or _shared[0] != kind:
        stop()
        _shared = (kind, start())
    return _shared[1]
