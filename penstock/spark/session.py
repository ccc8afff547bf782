"""The Spark session that slots run in: the user's active one whatever its settings are, else one of our own."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark.java import ensure_java

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_WORKER_MEMORY_MIB_MIN = 2048


class SessionError(Exception):
    """The session cannot run this job. The message says which setting, with numbers, and what to change."""


@dataclass(frozen=True)
class Substrate:
    """A session and what of it concerns slots. `is_local`: executors are on this machine, as in `local[n]` and
    `local-cluster[...]`. `driver_host`: where executors reach this process."""

    spark: SparkSession
    is_own: bool
    master: str
    is_local: bool
    driver_host: str

    @property
    def context(self) -> SparkContext:
        return self.spark.sparkContext

    def task_places(self) -> int | None:
        """How many tasks the session runs at once as it is now; None where Spark does not tell."""
        try:
            scala = self.context._jsc.sc()
            return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        except Exception as error:
            log.debug("Spark does not tell its task places: %s", error)
            return None

    def check_places(self, slots: int) -> None:
        """Raises `SessionError` where waiting cannot help: a local session never gets more places."""
        places = self.task_places()
        if self.is_local and places is not None and places < slots:
            raise SessionError(
                f"the job needs {slots} slots, but this Spark session (master {self.master}) runs {places} tasks at "
                f"once: start it with local[{slots + 2}], or lower the parallelism to {places}"
            )

    def advice(self, slots: int) -> str:
        """What to do when slots do not come, with this session's numbers."""
        places = self.task_places()
        has = "does not tell how many tasks it runs at once" if places is None else f"runs {places} tasks at once"
        return (
            f"the Spark session (master {self.master}) {has}, and other jobs of it may take some: give it more cores, "
            f"or lower the parallelism from {slots}"
        )

    def stop(self) -> None:
        """Ends a session of our own; leaves the user's alone."""
        if self.is_own:
            self.spark.stop()


def open_session(job_name: str, slots: int) -> Substrate:
    """The active session, or a new one. Takes some seconds for a new one. Raises `JavaMissing`, `SessionError`."""
    active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession(SparkContext._active_spark_context)
    is_own = active is None
    spark = active if active is not None else _start(job_name, slots)
    if not hasattr(spark, "_jsparkSession"):
        raise SessionError("slots need a classic Spark session; this one is a Spark Connect session")
    context = spark.sparkContext
    master = context.master
    is_local = master.startswith("local")
    if is_local:
        _use_our_python(context)
    _check_worker_memory(context)
    host = LOOPBACK if is_local else context.getConf().get("spark.driver.host") or LOOPBACK
    return Substrate(spark, is_own, master, is_local, host)


def _start(job_name: str, slots: int) -> SparkSession:
    builder: Any = SparkSession.builder.appName(job_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder.getOrCreate()  # under spark-submit: its settings, and its Java runs already
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    settings = {
        "spark.master": f"local[{max(os.cpu_count() or 1, slots + 2)}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _use_our_python(context: SparkContext) -> None:
    """Executors on this machine run the driver's interpreter, unless the user has said otherwise."""
    if "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python"):
        return
    theirs = shutil.which(context.pythonExec)
    if theirs is None or not os.path.samefile(theirs, sys.executable):
        context.pythonExec = sys.executable


def _check_worker_memory(context: SparkContext) -> None:
    """`spark.executor.pyspark.memory` limits a worker's address space, of which each thread reserves a part."""
    setting = context.getConf().get("spark.executor.pyspark.memory")
    if not setting:
        return
    utils = context._jvm.org.apache.spark.network.util.JavaUtils  # type: ignore[union-attr]
    memory_mib = int(utils.byteStringAsMb(setting)) // int(context.getConf().get("spark.executor.cores", "1") or 1)
    if memory_mib < _WORKER_MEMORY_MIB_MIN:
        log.warning(
            "spark.executor.pyspark.memory=%s leaves a slot %d MiB of address space, which may not be enough to start "
            "its threads: give %d MiB per core or more, or leave the setting out",
            setting,
            memory_mib,
            _WORKER_MEMORY_MIB_MIN,
        )
