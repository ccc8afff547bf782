"""Runs a server for tests as a process of its own: what all of them have in common."""

from __future__ import annotations

import http.client
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from tools.kafka_broker import die_with_parent
from tools.ports import free_ports

START_LIMIT_S = 180.0
STOP_LIMIT_S = 20.0


class ServerUnavailable(Exception):
    """Signals that a server cannot be installed or started here. The message says what is missing."""


class Server:
    """Runs a server as a process, with its data in `directory`. It dies with the thread that started it.

    `kill` ends it by SIGKILL; `start` then brings it back on the same port with the same data, if it keeps some.
    """

    name: ClassVar[str]
    stdin: ClassVar[int] = subprocess.DEVNULL

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.log = directory / "server.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Return the options with which Penstock reaches it."""
        return {}

    def uri(self, bucket: str) -> str:
        """Return the URI of a bucket."""
        raise NotImplementedError

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Return the command that runs it, having made what it needs."""
        raise NotImplementedError

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, and wait until it answers. Raises `ServerUnavailable`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.choose_ports()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=self.stdin, preexec_fn=die_with_parent,
                cwd=self._directory,
            )  # fmt: skip
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.answers():
                return
            time.sleep(0.05)
        how = "has ended" if self._process.poll() is not None else f"has not answered within {START_LIMIT_S:.0f} s"
        self.kill()
        raise ServerUnavailable(f"{self.name} {how}; the end of its log:\n{self.log_text()[-3000:]}")

    def choose_ports(self) -> None:
        (self.port,) = free_ports(1)

    def answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def log_text(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """End the server by SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order, or by SIGKILL where that takes too long."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_LIMIT_S)
