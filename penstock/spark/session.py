"""Opens the Spark that slots run in: the user's active one whatever its settings are, else one of our own.

Ours is a SparkContext without a session: slots need no SQL, and it starts in half the time. It stays for the process's
life, so that a program's next job finds it; a session that the user makes later joins it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock.spark.cluster.java import ensure_java
from penstock.spark.cluster.quick_java import QUICK, java_flags
from penstock.spark.cluster.spark_watch import why_gone
from penstock.spark.process.daemon_ahead import start_ahead
from penstock.spark.process.process_ends import FOLDER_VARIABLE, describe_end, ends_folder
from penstock.spark.process.slot_files import SlotFile

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_WORKER_MEMORY_MIB_MIN = 2048


class SessionError(Exception):
    """Signals that the session cannot run this job. The message names the setting, with numbers, and what to change."""


@dataclass(frozen=True)
class Substrate:
    """Holds a Spark context and its settings that concern slots. `is_local`: executors are on this machine, as in
    `local[n]` and `local-cluster[...]`. `driver_host`: where executors reach this process.
    """

    context: SparkContext
    master: str
    is_local: bool
    driver_host: str
    records_ends: bool = False
    """True if the session's daemon records how processes end (`process_ends.py`)."""
    python: str | None = None
    """The Python that the job's slots run; None: the session's."""
    files: tuple[SlotFile, ...] = ()
    """The files that the job's slots prepare before they run functions."""

    def new_session(self) -> SparkSession:
        """Return a session of this context whose settings are its own."""
        return SparkSession(self.context).newSession()

    def task_places(self) -> int | None:
        """Return the number of tasks that the session runs at once now; None if Spark does not report it."""
        try:
            scala = self.context._jsc.sc()
            return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        except Exception as error:
            log.debug("Spark does not tell its task places: %s", error)
            return None

    @property
    def grows(self) -> bool:
        """Return whether executors may come long after the session has started."""
        dynamic = self.context.getConf().get("spark.dynamicAllocation.enabled") or "false"
        return dynamic.lower() == "true" or self.master.startswith(("yarn", "k8s"))

    def fixed_places(self) -> int | None:
        """Return the number of tasks that run at once, if it never changes (`local[n]`); None elsewhere."""
        is_fixed = self.master == "local" or self.master.startswith("local[")
        return self.task_places() if is_fixed else None

    def advice(self, slots: int) -> str:
        """Return the advice for slots that do not come, with this session's numbers."""
        places = self.task_places()
        has = "does not tell how many tasks it runs at once" if places is None else f"runs {places} tasks at once"
        lower = f", or lower the parallelism from {slots}" if slots > 1 else ", or end other jobs of it"
        return (
            f"the Spark session (master {self.master}) {has}, and other jobs of it may take some: give it more cores"
            f"{lower}"
        )

    def hide_progress_bars(self) -> None:
        """Stop the bars that Spark draws for stages: a slot's stage would be shown as long as the job runs.

        They stay off in this context, because Spark cannot start them again."""
        try:
            bar = self.context._jsc.sc().progressBar()
            if bar.isDefined():
                bar.get().stop()
        except Exception as error:
            log.debug("Spark's progress bars stay: %s", error)


def is_running() -> bool:
    """Return whether a Spark runs already, so that `open_session` takes no time."""
    return SparkContext._active_spark_context is not None


def open_session(job_name: str, slots: int, keep: bool = False, queries: bool = False) -> Substrate:
    """Return the active context, or a new one, which takes some seconds. `keep`: the active one has what the job needs,
    and is used even if it is ours and too small. `queries`: the program will ask a new one for more than slots. Raises
    `JavaMissing`, `SessionError`.
    """
    global _own
    if SparkContext._active_spark_context is None and (active := SparkSession.getActiveSession()) is not None:
        raise SessionError(
            f"slots need a classic Spark session, and the active one is a {type(active).__module__}: make the "
            "session without .remote(...), and unset SPARK_REMOTE"
        )
    context = SparkContext._active_spark_context
    if context is not None and (why := why_gone(context)) is not None:
        raise SessionError(why)
    if not keep and context is not None and _is_too_small(slots):
        context.stop()
        context = SparkContext._active_spark_context
    if context is None:
        context = _start(job_name, slots, queries)
        _own = context
        _quiet_py4j()
    master = context.master or ""
    is_local = master.startswith("local")
    if is_local:
        _use_our_python(context)
    _check_worker_memory(context)
    host = LOOPBACK if is_local else context.getConf().get("spark.driver.host") or LOOPBACK
    return Substrate(context, master, is_local, host, records_ends=context is _own)


_own: SparkContext | None = None


def _quiet_py4j() -> None:
    """Leave Py4J's notes on its own connections out of a program's log, unless the program has set their level."""
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.WARNING)


def _is_too_small(slots: int) -> bool:
    """Return whether the active context is ours, from an earlier job, and has too few task places for this one."""
    active = SparkContext._active_spark_context
    return active is not None and active is _own and active.defaultParallelism < slots


def _start(job_name: str, slots: int, queries: bool) -> SparkContext:
    conf = SparkConf().setAppName(job_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return SparkContext(conf=conf)  # under spark-submit: its settings apply, and its Java runs already
    flags = java_flags(ensure_java(), is_quick=not queries)
    # Spark starts a Java to find out how to start Java.
    if flags:
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    settings = {
        "spark.master": f"local[{max(os.cpu_count() or 1, slots + 2)}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.python.daemon.module": "penstock.spark.process.slot_daemon",
        f"spark.executorEnv.{FOLDER_VARIABLE}": str(ends_folder()),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')} {flags}"
        ),
    }
    source_tree = _source_tree()
    if source_tree:
        settings["spark.executorEnv.PYTHONPATH"] = source_tree
    if os.environ["PYSPARK_PYTHON"] == sys.executable:
        settings |= {f"spark.executorEnv.{name}": value for name, value in start_ahead(source_tree).items()}
    with _interrupt_deferred():
        try:
            return SparkContext(conf=conf.setAll(list(settings.items())))
        except (OSError, Py4JError, PySparkException) as error:
            # A process that is gone would be found by the next start, too.
            process = getattr(SparkContext._gateway, "proc", None)
            code = None if process is None else process.poll()
            if code is None and "JAVA_GATEWAY_EXITED" not in str(error):
                raise
            _forget_gateway()
            how = "ended" if code is None else describe_end(code, 0)
            raise SessionError(f"Spark could not be started: its Java process {how}. What it said is above") from error


def _forget_gateway() -> None:
    """Let the next SparkContext start another Java process."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


@contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Defer Ctrl-C until Java runs: if PySpark is interrupted while it starts Java, that Java runs for ever. Afterwards
    PySpark's own handler is removed, which would cancel the slots before we can ask them to leave.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def defer(number: int, _frame: FrameType | None) -> None:
        pressed.append(number)
        print("penstock: interrupted; ending as soon as Spark has started", file=sys.stderr)

    before = signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
    if pressed:
        raise KeyboardInterrupt


def _source_tree() -> str | None:
    """Return the folder that we are imported from, if a new Python process would not find us there by itself."""
    try:
        version("penstock")
        return None
    except PackageNotFoundError:
        folder = str(Path(penstock.__file__).parents[1])
        return None if folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) else folder


def _use_our_python(context: SparkContext) -> None:
    """Make executors on this machine run the driver's interpreter, unless the user has chosen another."""
    if "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python"):
        return
    theirs = shutil.which(context.pythonExec)
    if theirs is None or not os.path.samefile(theirs, sys.executable):
        context.pythonExec = sys.executable


def _check_worker_memory(context: SparkContext) -> None:
    """Check `spark.executor.pyspark.memory`: it limits the address space, of which each thread reserves a part."""
    setting = context.getConf().get("spark.executor.pyspark.memory")
    if not setting:
        return
    assert context._jvm is not None
    utils = context._jvm.org.apache.spark.network.util.JavaUtils
    memory_mib = int(utils.byteStringAsMb(setting)) // int(context.getConf().get("spark.executor.cores", "1") or 1)
    if memory_mib < _WORKER_MEMORY_MIB_MIN:
        log.warning(
            "spark.executor.pyspark.memory=%s leaves a slot %d MiB of address space, which may not be enough to start "
            "its threads: give %d MiB per core or more, or leave the setting out",
            setting,
            memory_mib,
            _WORKER_MEMORY_MIB_MIN,
        )
