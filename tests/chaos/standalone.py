"""Runs a standalone Spark cluster on this machine, from what PySpark ships: one Master, Workers, all on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import quick_spark, shared_spark
from tools.ports import free_ports

START_S = 60.0


@contextmanager
def standalone_cluster(folder: Path, workers: int, cores: int) -> Iterator[StandaloneCluster]:
    """A cluster of so many Workers with so many cores each, which is ended at last."""
    from penstock.spark.cluster.java import ensure_java

    ensure_java()
    cluster = StandaloneCluster(folder, workers, cores)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@contextmanager
def session_on(cluster: StandaloneCluster, more: dict[str, str]) -> Iterator[Any]:
    """A session in place of the shared one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    shared_spark.stop()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick_spark.java_options,
        **shared_spark.USERS,
        **more,
    }
    builder = SparkSession.builder.master(cluster.master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


class StandaloneCluster:
    """Started by `start`, which waits for the Master (a session waits for Workers), ended by `stop`. Each Worker
    has a process group of its own, so that it can be killed together with its executors, as when a machine goes."""

    def __init__(self, folder: Path, workers: int, cores: int) -> None:
        self._folder = folder
        self._cores = cores
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> StandaloneCluster:
        (port,) = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        self._launch("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        self._wait_for("master", "I have been elected leader")
        for number in range(self._count):
            self.start_worker(number)
        return self

    def start_worker(self, number: int) -> None:
        self._launch(
            f"worker{number}",
            "worker.Worker",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "--cores",
            str(self._cores),
            "--memory",
            "2g",
            "--work-dir",
            str(self._folder / f"work{number}"),
            self.master,
        )

    def kill_worker_of(self, executor: int) -> None:
        """SIGKILL of the Worker that has started this executor, and of everything else that it has started."""
        worker = next(p for p in self._processes if p.pid == parent(executor))
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10.0)

    def kill_all_workers(self) -> None:
        """SIGKILL of every Worker, and of everything that it has started."""
        for worker in self._processes[1:]:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(10.0)

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10.0)

    def _launch(self, name: str, spark_class: str, *arguments: str) -> None:
        home = Path(os.environ["SPARK_HOME"])
        environment = {
            **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": quick_spark.java_options,
            "SPARK_NO_DAEMONIZE": "1",
        }  # fmt: skip
        # Workers must get everything of ours from the driver.
        environment.pop("PYTHONPATH", None)
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{spark_class}", *arguments],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                    cwd=self._folder,
                )
            )

    def _wait_for(self, name: str, line: str) -> None:
        log, deadline = self._folder / f"{name}.log", time.monotonic() + START_S
        while line not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name}: {log.read_text(errors='replace')[-2000:]}"
            time.sleep(0.05)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(slot_pid: int) -> int:
    """The JVM whose Python daemon has forked the slot's process."""
    return parent(parent(slot_pid))


def decommission(session: Any, executor: int) -> None:
    """Give up a Worker as a cluster manager does that is about to take the machine away."""
    words = Path(f"/proc/{executor}/cmdline").read_text().split("\0")
    jvm, spark = session.sparkContext._jvm, session.sparkContext._jsc.sc()
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("the test says so", jvm.scala.Option.apply(None))
    number = words[words.index("--executor-id") + 1]
    assert spark.schedulerBackend().decommissionExecutor(number, info, False, False)
