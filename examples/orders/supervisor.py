"""Starts a command again until it ends well: what systemd, Kubernetes or YARN do, in a few lines."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path


class Supervisor:
    """Runs `command`, and the same command again whenever it has ended with an error. Its output goes to `log`."""

    def __init__(self, command: list[str], log: Path, say: Callable[[str], None]) -> None:
        self._command = command
        self._log = log
        self._say = say
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def has_finished(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        with self._log.open("ab") as log:
            while not self._stopped:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                code = self._process.wait()
                if code == 0:
                    self._say("the supervisor sees that the job has finished")
                    return
                if not self._stopped:
                    how = f"was killed by signal {-code}" if code < 0 else f"has ended with {code}"
                    self._say(f"the supervisor sees that the driver {how}, and starts the same command again")

    def wait(self, limit_s: float) -> bool:
        """Wait until the command has ended well; return whether it has."""
        self._thread.join(limit_s)
        return self.has_finished

    def stop(self) -> None:
        """End the command by SIGTERM, and start it no more."""
        self._stopped = True
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(60)
