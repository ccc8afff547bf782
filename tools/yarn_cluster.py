"""Runs a YARN cluster in one process for tests: a resource manager and two node managers on the loopback interface.

Its jars come from Maven Central once (119 MB), by Maven, into the user's cache folder. It needs a JDK, 17 or later.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tools.kafka_broker import ROOT, BrokerUnavailable, die_with_parent, install

SOURCE = ROOT / "tools" / "yarn" / "MiniYarn.java"
POM = SOURCE.with_name("pom.xml")
START_LIMIT_S = 180.0
STOP_LIMIT_S = 20.0


class YarnCluster:
    """Runs a cluster with its files in `directory`. It dies with the thread that started it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> Path:
        """The directory for HADOOP_CONF_DIR."""
        return self._directory / "conf"

    def start(self) -> None:
        """Start the cluster, and wait until its nodes have registered.

        Raises:
            BrokerUnavailable: It cannot be installed, or it has not started in time. The message ends with its log.
        """
        import pyspark

        spark_jars = Path(pyspark.__file__).parent / "jars"
        jars = [str(install(POM, "a YARN cluster") / "*"), *map(str, spark_jars.glob("log4j-*.jar"))]
        self.conf.mkdir(parents=True)
        log_path = self._directory / "cluster.log"
        java = ["java", "-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars)]
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*java, str(SOURCE), str(self.conf)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, cwd=self._directory,
            )  # fmt: skip
        deadline = time.monotonic() + START_LIMIT_S
        while "\nREADY\n" not in (said := log_path.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise BrokerUnavailable(f"the YARN cluster has not started; the end of its log:\n{said[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_LIMIT_S)


def application_masters() -> list[int]:
    """Return the processes of application masters that Spark has on this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_text(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        is_master = any(word.startswith("org.apache.spark.deploy.yarn.") for word in words)
        if words[0].endswith("java") and is_master:
            found.append(int(file.parent.name))
    return found
