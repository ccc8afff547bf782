"""Runs HDFS in one process, open to everybody or behind Kerberos, with Hadoop's own test servers from Maven."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from tools.kafka_broker import ROOT, BrokerUnavailable, install
from tools.ports import free_ports
from tools.server import Server, ServerUnavailable

YARN_JARS = ROOT / "tools" / "yarn" / "pom.xml"
KERBEROS_JARS = ROOT / "tools" / "kerberos" / "pom.xml"
HDFS_SOURCE = ROOT / "tools" / "hdfs" / "MiniDfs.java"
COMMAND_LIMIT_S = 90.0
PRINCIPAL = "alice@EXAMPLE.COM"

_KDC = """
org.name=EXAMPLE
org.domain=COM
kdc.bind.address=localhost
kdc.port=0
instance=DefaultKrbServer
max.ticket.lifetime=86400000
max.renewable.lifetime=604800000
transport=TCP
debug=false
"""


class Hdfs(Server):
    """Runs HDFS with one data node, in one process. Its name node's port is the server's."""

    name = "HDFS"
    stdin: ClassVar[int] = subprocess.PIPE

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._starts = 0

    def command(self) -> list[str]:
        import pyspark

        # The jars of the YARN cluster have HDFS, too.
        jars = _jars(YARN_JARS, "HDFS")
        logging = (Path(pyspark.__file__).parent / "jars").glob("log4j-*.jar")
        return _java([str(jars / "*"), *map(str, logging)], [
            *self.java_options(), str(HDFS_SOURCE), str(self._directory / "hdfs"), str(self.port), *self.arguments(),
        ])  # fmt: skip

    def java_options(self) -> list[str]:
        return []

    def arguments(self) -> list[str]:
        return []

    def uri(self, bucket: str) -> str:
        return f"hdfs://127.0.0.1:{self.port}/{bucket}"

    def answers(self) -> bool:
        return self.log_text().count("\nREADY\n") > self._starts

    def start(self) -> None:
        self._starts = self.log_text().count("\nREADY\n")
        super().start()

    def make_bucket(self, bucket: str) -> None:
        """Do nothing: it is a folder, which the driver makes."""

    def execute(self, command: str) -> None:
        """Execute one of the commands that MiniDfs.java lists, and wait until it is done."""
        process, said = self._process, len(self.log_text())
        assert process is not None and process.stdin is not None, "HDFS does not run"
        process.stdin.write(f"{command}\n".encode())
        process.stdin.flush()
        deadline = time.monotonic() + COMMAND_LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            new = self.log_text()[said:]
            if f"DONE {command}\n" in new:
                return
            if f"FAILED {command}" in new:
                break
            time.sleep(0.02)
        raise ServerUnavailable(f"HDFS could not execute {command!r}:\n{self.log_text()[said:][-2000:]}")

    def suspend(self) -> None:
        """Stop the process, so that it keeps its connections and answers nothing."""
        assert self._process is not None, "HDFS does not run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process continue."""
        assert self._process is not None, "HDFS does not run"
        self._process.send_signal(signal.SIGCONT)


class HdfsPair(Hdfs):
    """Runs HDFS with two name nodes, of which one is active."""

    name = "HDFS with two name nodes"

    def choose_ports(self) -> None:
        self.port, self._second_port = free_ports(2)

    def arguments(self) -> list[str]:
        return [f"pair={self._second_port}"]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of driver and executors."""
        return {"HADOOP_CONF_DIR": str(self._directory / "hdfs")}

    def uri(self, bucket: str) -> str:
        return f"hdfs://pair/{bucket}"


class Kerberos(Server):
    """Runs Hadoop's Kerberos server for tests, with the principals of HDFS and of `PRINCIPAL` in one keytab."""

    name = "Kerberos"

    @property
    def keytab(self) -> Path:
        return self._directory / "all.keytab"

    @property
    def settings(self) -> Path:
        """Return the file that KRB5_CONFIG has to name."""
        return self._directory / "krb5.conf"

    def choose_ports(self) -> None:
        """Do nothing: it chooses one, and writes it into `settings`."""

    def command(self) -> list[str]:
        properties = self._directory / "kdc.properties"
        properties.write_text(_KDC, encoding="utf-8")
        return _java([str(_jars(KERBEROS_JARS, "a Kerberos server") / "*")], [
            "org.apache.hadoop.minikdc.MiniKdc", str(self._directory), str(properties), str(self.keytab),
            "hdfs/localhost", PRINCIPAL.partition("@")[0],
        ])  # fmt: skip

    def answers(self) -> bool:
        return "to stop it" in self.log_text()


class SecureHdfs(Hdfs):
    """Runs HDFS that wants Kerberos, and encrypts what is sent. `kerberos` runs for as long as it does."""

    name = "HDFS with Kerberos"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.kerberos = Kerberos(directory / "kerberos")

    def start(self) -> None:
        if not self.kerberos.log_text():
            self.kerberos.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.kerberos.stop()

    def java_options(self) -> list[str]:
        return [f"-Djava.security.krb5.conf={self.kerberos.settings}"]

    def arguments(self) -> list[str]:
        return [f"keytab={self.kerberos.keytab}"]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of driver and executors. Java does not know KRB5_CONFIG."""
        settings = self.kerberos.settings
        return {
            "HADOOP_CONF_DIR": str(self._directory / "hdfs"),
            "KRB5_CONFIG": str(settings),
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={settings}",
        }

    @property
    def options(self) -> dict[str, str]:
        return {
            "security.kerberos.login.keytab": str(self.kerberos.keytab),
            "security.kerberos.login.principal": PRINCIPAL,
        }

    def make_bucket(self, bucket: str) -> None:
        """Make a folder that `PRINCIPAL` may write to."""
        self.execute(f"folder /{bucket} {PRINCIPAL.partition('@')[0]}")

    def uri(self, bucket: str) -> str:
        # The name of the name node's principal.
        return f"hdfs://localhost:{self.port}/{bucket}"


def _jars(pom: Path, what: str) -> Path:
    try:
        return install(pom, what)
    except BrokerUnavailable as error:
        raise ServerUnavailable(str(error)) from None


def _java(path: list[str], arguments: list[str]) -> list[str]:
    options = ["-Xmx500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", os.pathsep.join(path), *arguments]
