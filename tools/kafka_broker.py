"""Runs a real Kafka broker for tests and examples: one KRaft node on free ports of the loopback interface.

Its jars come from Maven Central once (44 MB), by Maven, into the user's cache folder. It needs Java 17 or later.

    python tools/kafka_broker.py        # starts one, prints its address, and runs until Ctrl-C
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
POM = ROOT / "tools" / "kafka" / "pom.xml"
DOWNLOAD_LIMIT_S = 400.0
START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0
_PR_SET_PDEATHSIG = 1

SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
"""

OPEN = """
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
"""

# Besides the open port: one for users with passwords, and one for them with TLS.
SECURED = """
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller},\
USERS://127.0.0.1:{users},TLS://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT,TLS:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.users.plain.sasl.jaas.config={jaas}
listener.name.tls.plain.sasl.jaas.config={jaas}
ssl.keystore.type=PKCS12
ssl.keystore.location={keys}
ssl.keystore.password={keys_password}
"""

_KEYS_PASSWORD = "for-tests-only"


class BrokerUnavailable(Exception):
    """Signals that no broker can be installed or started here. The message says what is missing."""


def install(pom: Path = POM, what: str = "a Kafka broker") -> Path:
    """Return the folder of the jars that a POM names; have Maven fetch them the first time.

    Raises:
        BrokerUnavailable: There is no Maven, or it has failed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / pom.parent.name
    home = cache / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if home.exists():
        return home
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailable(f"there is no Maven (mvn) in the PATH to fetch {what}: apt-get install maven")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.exists():
            return home
        building = Path(tempfile.mkdtemp(dir=cache))
        try:
            command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={building}", "-DincludeScope=runtime"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                raise BrokerUnavailable(f"Maven could not fetch {what}:\n{(done.stdout + done.stderr)[-2000:]}")
            building.rename(home)
        except subprocess.TimeoutExpired:
            raise BrokerUnavailable(f"Maven has not fetched {what} within {DOWNLOAD_LIMIT_S:.0f} s") from None
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return home


class KafkaBroker:
    """Runs a broker with its data in `directory`. It dies with the thread that started it.

    Use it as a context manager, or call `start` and `stop`. `kill` ends it by SIGKILL; `start` then brings it back on
    the same ports with the same data. `settings` are lines of server.properties. With `users` (passwords by name) it
    has two more ports, which want them: `users_servers`, and `tls_servers`, whose certificate is in `certificate`.
    """

    def __init__(self, directory: Path, settings: str = "", users: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._extra = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._libraries = ""
        self._users = dict(users or {})
        self._broker_port = self._controller_port = self._users_port = self._tls_port = 0

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._broker_port}"

    @property
    def users_servers(self) -> str:
        return f"127.0.0.1:{self._users_port}"

    @property
    def tls_servers(self) -> str:
        return f"127.0.0.1:{self._tls_port}"

    @property
    def certificate(self) -> Path:
        return self._directory / "broker.pem"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker, and wait until it answers.

        Raises:
            BrokerUnavailable: It cannot be installed, or it has not started in time. The message ends with its log.
        """
        if not self._libraries:
            self._format()
        log = (self._directory / "broker.log").open("ab")
        self._process = subprocess.Popen(
            [*self._java(), "kafka.Kafka", str(self._settings_file)],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, cwd=self._directory,
        )  # fmt: skip
        log.close()
        self._wait_until_it_answers()

    def kill(self) -> None:
        """End the broker by SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the broker in order, or by SIGKILL where that takes too long."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_LIMIT_S)

    @property
    def _settings_file(self) -> Path:
        return self._directory / "server.properties"

    def _format(self) -> None:
        self._libraries = str(install() / "*")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._broker_port, self._controller_port, self._users_port, self._tls_port = free_ports(4)
        if self._users:
            self._make_keys()
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        jaas += "".join(f' user_{name}="{password}"' for name, password in self._users.items())
        settings = (SETTINGS + (SECURED if self._users else OPEN)).format(
            broker=self._broker_port, controller=self._controller_port, logs=self._directory / "data",
            users=self._users_port, tls=self._tls_port, jaas=f"{jaas};", keys=self._keys, keys_password=_KEYS_PASSWORD,
        )  # fmt: skip
        self._settings_file.write_text(settings + self._extra, encoding="utf-8")
        # It begins with a letter: one in 64 would begin with a dash, and be taken for an option.
        cluster = urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings_file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT_S, check=False)
        if done.returncode:
            raise BrokerUnavailable(f"a Kafka broker could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}")

    @property
    def _keys(self) -> Path:
        return self._directory / "broker.p12"

    def _make_keys(self) -> None:
        keytool = [
            _java_program("keytool"),
            "-keystore",
            str(self._keys),
            "-storepass",
            _KEYS_PASSWORD,
            "-alias",
            "broker",
        ]
        make = [
            "-genkeypair",
            "-keyalg",
            "EC",
            "-storetype",
            "PKCS12",
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "SAN=ip:127.0.0.1",
        ]
        for command in (make, ["-exportcert", "-rfc", "-file", str(self.certificate)]):
            done = subprocess.run(
                [*keytool, *command], capture_output=True, text=True, timeout=START_LIMIT_S, check=False
            )
            if done.returncode:
                raise BrokerUnavailable(
                    f"no certificate could be made for a Kafka broker:\n{done.stdout + done.stderr}"
                )

    def _java(self) -> list[str]:
        java = _java_program("java")
        return [java, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._libraries]

    def _wait_until_it_answers(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._broker_port), 1.0).close()
                AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(timeout=10)
                return
            except (OSError, KafkaException):
                time.sleep(0.1)
        how = "has ended" if self._process.poll() is not None else f"has not answered within {START_LIMIT_S:.0f} s"
        self.kill()
        log = (self._directory / "broker.log").read_text(encoding="utf-8", errors="replace")
        raise BrokerUnavailable(f"the Kafka broker {how}; the end of its log:\n{log[-3000:]}")


def _java_program(name: str) -> str:
    from penstock.spark.cluster.java import find_java

    home, _ = find_java()
    return name if home is None else str(home / "bin" / name)


def die_with_parent() -> None:
    """End a child process when the thread that has started it ends; for `preexec_fn`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as directory:
        try:
            with KafkaBroker(Path(directory)) as broker:
                print(broker.bootstrap_servers, flush=True)
                signal.sigwait({signal.SIGINT, signal.SIGTERM})
        except BrokerUnavailable as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
