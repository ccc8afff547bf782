"""Makes a job reachable from other terminals while it runs: the driver's server, and the user's registry."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.options import CheckpointingOptions, RestOptions
from penstock.network.listening import listen
from penstock.rest.api import ServedJob
from penstock.rest.job_registry import (
    RegistryError,
    RunningJob,
    dashboard_address,
    process_started,
    register,
    registry_directory,
    unregister,
)
from penstock.rest.server import LINGER_S, RestServer

LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::")

_lock = threading.Lock()
_servers: dict[tuple[str, tuple[range, ...], str], RestServer] = {}
"""The servers of this process, by host, ports and the place of the token: jobs with the same options share one."""


class JobHosting:
    """Serves one job. `start` may be called once; `end` always is. Raises `PortError` if no port can be used."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._server = _acquire(configuration)
        self._end = threading.Lock()
        self._served: tuple[str, ServedJob] | None = None
        self._registered: tuple[RunningJob, Path] | None = None

    def start(self, client: JobClient, directory: str | None, warn: Callable[[str], None]) -> None:
        """Serve and register the job. One that cannot be registered runs, and `warn` says that nobody can reach it."""
        get, started_wall_ms = self._configuration.get, int(time.time() * 1000)
        report, pid = client.report(), os.getpid()
        takes_checkpoints = get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is not None
        self._served = (
            report.job_id,
            ServedJob(client, started_wall_ms, takes_checkpoints, self._configuration, directory),
        )
        self._server.serve(*self._served)
        job = RunningJob(
            report.job_id,
            report.job_name,
            pid,
            process_started(pid) or "",
            socket.gethostname(),
            self._url(),
            self._server.token,
            directory,
            started_wall_ms,
        )
        try:
            self._registered = job, register(job)
        except RegistryError as error:
            warn(f"other terminals cannot reach this job: {error}")

    def end(self) -> None:
        """Remove the job from the registry. The server closes once those who wait for this job know how it ended."""
        if self._end.acquire(blocking=False):
            if self._registered is not None:
                unregister(*self._registered)
            self._server.release(self._served)

    def dashboard(self, with_token: bool) -> str | None:
        """Return the dashboard's address. Whoever has the token may stop the job: it belongs on the user's terminal,
        and not in a log that others read."""
        if self._registered is None:
            return None
        job = self._registered[0]
        if with_token:
            return dashboard_address(job)
        return f"{job.url}/ui/ (penstock dashboard {job.job_id} shows the address that opens it)"

    def _url(self) -> str:
        get = self._configuration.get
        host = get(RestOptions.ADDRESS) or _bind_address(self._configuration)
        host = LOOPBACK if host in _EVERYWHERE else host
        return f"http://{f'[{host}]' if ':' in host else host}:{get(RestOptions.PORT) or self._server.port}"


def _bind_address(configuration: Configuration) -> str:
    get = configuration.get
    return get(RestOptions.BIND_ADDRESS) or get(RestOptions.ADDRESS) or LOOPBACK


def _acquire(configuration: Configuration) -> RestServer:
    host, given = _bind_address(configuration), configuration.get(RestOptions.BIND_PORT)
    port = configuration.get(RestOptions.PORT)
    ports, option = (given, RestOptions.BIND_PORT) if given else ((range(port, port + 1),), RestOptions.PORT)
    host_option = RestOptions.BIND_ADDRESS if configuration.get(RestOptions.BIND_ADDRESS) else RestOptions.ADDRESS
    # Part of the key, because a server that outlives its jobs names the registry's directory of when it was started.
    where_token = f"{registry_directory()}/<job id>.json"
    with _lock:
        server = _servers.get((host, ports, where_token))
        if server is None or not server.acquire():
            server = RestServer(listen(host, ports, option.key, host_option.key), where_token)
            server.acquire()
            _servers[host, ports, where_token] = server
        return server


def _linger() -> None:
    """Keep the process alive for a moment, so that a user who stopped the job from another terminal can read its
    outcome."""
    for server in _servers.values():
        server.join(LINGER_S + 1)


atexit.register(_linger)
