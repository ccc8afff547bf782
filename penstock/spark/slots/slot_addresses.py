"""Decides at which addresses a job's driver and slots listen, and which ones they announce, as the options say."""

from __future__ import annotations

import socket
from typing import Any, Callable, Iterator

from penstock.common.configuration import Configuration
from penstock.common.options import HeartbeatOptions, JobManagerOptions, TaskManagerOptions
from penstock.common.options.cluster import ANY_PORT
from penstock.common.options.option import ConfigOption
from penstock.network.listening import listen
from penstock.spark.cluster.submission import search_path
from penstock.spark.process.slot_task import NEEDS, SlotArguments, slot_task
from penstock.spark.session import LOOPBACK, Substrate

# A user watches the job by its statuses; they also are the heartbeat.
STATUS_INTERVAL_MS_MAX = 500
# How much later than our message to a slot Spark's may reach the executor that runs it.
LINGER_S = 1.0


def listen_for_slots(configuration: Configuration, substrate: Substrate) -> socket.socket:
    """Return the socket that slots connect to. Raises `PortError`."""
    get = configuration.get
    everywhere = LOOPBACK if substrate.driver_host == LOOPBACK else "0.0.0.0"
    return listen(
        get(JobManagerOptions.BIND_HOST) or get(JobManagerOptions.ADDRESS) or everywhere,
        *_bind_ports(configuration, JobManagerOptions.RPC_BIND_PORT, JobManagerOptions.PORT),
        JobManagerOptions.BIND_HOST.key,
    )


Ports = tuple[range, ...]


def _bind_ports(
    configuration: Configuration, bind: ConfigOption[Ports | None], announced: ConfigOption[Ports | None]
) -> tuple[Ports, str]:
    """Return the ports to listen on, and the option's key: by default the announced ones, as in Flink."""
    if (ports := configuration.get(bind)) is not None:
        return ports, bind.key
    ports = configuration.get(announced)
    return (ANY_PORT, bind.key) if ports is None else (ports, announced.key)


def _announced_port(
    configuration: Configuration, bind: ConfigOption[Ports | None], announced: ConfigOption[Ports | None]
) -> int | None:
    """Return the port to announce; None: the one that is listened on, which may be one of a range of announced ones."""
    ports = configuration.get(announced)
    is_same = configuration.get(bind) is None
    return None if ports is None or is_same else ports[0][0] or None


class SlotBodies:
    """Makes the functions of slots' Spark tasks. `port`: where the driver listens."""

    def __init__(
        self,
        configuration: Configuration,
        substrate: Substrate,
        job_id: str,
        job_name: str,
        secret: bytes,
        port: int,
    ) -> None:
        self._configuration = configuration
        self._substrate = substrate
        self._job_id = job_id
        self._job_name = job_name
        self._secret = secret
        self._port = port

    def __call__(self, slot: int, submission: int, relieves: bool) -> Callable[[Any], Iterator[Any]]:
        get, substrate = self._configuration.get, self._substrate
        options, data = JobManagerOptions, TaskManagerOptions
        bind_ports, bind_key = _bind_ports(self._configuration, data.DATA_BIND_PORT, data.DATA_PORT)
        driver_port = _announced_port(self._configuration, options.RPC_BIND_PORT, options.PORT)
        return slot_task(
            SlotArguments(
                driver_host=get(JobManagerOptions.ADDRESS) or substrate.driver_host,
                driver_port=driver_port or self._port,
                secret=self._secret,
                job_id=self._job_id,
                job_name=self._job_name,
                slot=slot,
                submission=submission,
                bind_host=get(TaskManagerOptions.BIND_HOST),
                advertised_host=get(TaskManagerOptions.HOST),
                bind_ports=tuple((ports[0], ports[-1]) for ports in bind_ports),
                bind_ports_option=bind_key,
                advertised_port=_announced_port(self._configuration, data.DATA_BIND_PORT, data.DATA_PORT),
                status_interval_ms=min(int(get(HeartbeatOptions.HEARTBEAT_INTERVAL).ms), STATUS_INTERVAL_MS_MAX),
                heartbeat_timeout_ms=int(get(HeartbeatOptions.HEARTBEAT_TIMEOUT).ms),
                search_path=search_path(substrate, self._configuration),
                relieves=relieves,
                files=tuple(file.fields() for file in substrate.files),
                needs=() if substrate.is_local else NEEDS,
                linger_s=0.0 if substrate.is_local else LINGER_S,
            )
        )
