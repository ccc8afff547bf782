"""A slot's process: what runs inside the Spark task until the slot is told to leave.

It never returns: Spark would hand the living process, with our threads and settings, to the user's next job. An error
before the slot has registered is raised, so that it can be read in the driver; afterwards the process ends itself.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import queue
import secrets
import sys
from typing import Any, Callable, NoReturn

from pyspark import TaskContext

import penstock
from penstock.network.control_client import ControlClient
from penstock.network.endpoint import Endpoint
from penstock.network.handshake import Identity
from penstock.network.io_loop import IoLoop
from penstock.network.listening import listen
from penstock.protocol.elements import Generation
from penstock.protocol.messages import Leave, Left, Message, Printed, Register
from penstock.spark.printed_stream import PrintedStream
from penstock.spark.slot_task import SlotArguments
from penstock.spark.system_clock import SystemClock

log = logging.getLogger(__name__)

# Measured: with the default of 5 ms a busy thread delays each hop of a barrier by that much; 0.5 ms costs 4 %.
SWITCH_INTERVAL_S = 0.0005
# Rows become tuples by the thousand: with the default (700) the collector runs several times per batch.
GC_THRESHOLDS = (100_000, 20, 50)
_CANCEL_S_MAX = 3.0
NO_GENERATION = Generation(0, 0)


def main(arguments: SlotArguments) -> NoReturn:
    """The entry of a real slot."""
    from penstock.runtime.threads import start_slot

    SlotProcess(arguments, start_slot).run()


class SlotProcess:
    """`make_slot(slot=, process=, clock=, master=, links=, heartbeat_interval_ms=)` builds what handles messages and
    frames: it has the methods of `penstock.runtime.slot.Slot`, and they are called by the I/O thread."""

    def __init__(self, arguments: SlotArguments, make_slot: Callable[..., Any]) -> None:
        self._arguments = arguments
        self._make_slot = make_slot
        self._process = secrets.token_hex(8)
        self._ends: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._slot: Any = None
        self._leaving = False
        self._loop = IoLoop("penstock-io")

    def run(self) -> NoReturn:
        """Raises what keeps the slot from registering; ends the process otherwise."""
        self._loop.start()
        try:
            client, endpoint = self._connect()
        except BaseException:
            self._loop.stop()
            raise
        self._tune(client)
        client.send(self._registration(endpoint))
        kind, detail = self._ends.get()
        if kind == "closed":
            client.send(Left(NO_GENERATION, self._arguments.slot))
            self._wait_for_driver()
        elif not self._leaving:
            print(f"penstock: slot {self._arguments.slot} ends: {detail}", file=sys.__stderr__, flush=True)
        os._exit(0 if self._leaving else 1)

    def _wait_for_driver(self) -> None:
        """Until the driver, having cancelled the Spark job, closes the connection: Spark must know before it sees
        the process gone, or it reports a crash."""
        with contextlib.suppress(queue.Empty):
            self._ends.get(timeout=_CANCEL_S_MAX)

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Leave):
            self._leaving = True
            self._slot.close(lambda: self._ends.put(("closed", message.message)))
        else:
            self._slot.on_message(message)

    def _on_master_lost(self, detail: str) -> None:
        if self._slot is not None:
            self._slot.on_master_lost(detail)
        self._ends.put(("lost", detail))

    def _connect(self) -> tuple[ControlClient, Endpoint]:
        arguments = self._arguments
        client = ControlClient(
            self._loop,
            arguments.driver_host,
            arguments.driver_port,
            Identity(arguments.job_id, arguments.slot, self._process),
            arguments.secret,
            self._on_message,
            self._on_master_lost,
            arguments.heartbeat_timeout_ms,
        )
        seen_by_driver = client.wait_connected()
        if seen_by_driver is None:
            raise ConnectionError(f"slot {arguments.slot}: {self._ends.get()[1]}")
        self._host = arguments.advertised_host or seen_by_driver
        listening = listen(
            arguments.bind_host or self._host,
            tuple(range(first, last + 1) for first, last in arguments.bind_ports),
            "taskmanager.data.bind-port",
            "taskmanager.bind-host",
        )
        endpoint = Endpoint(
            self._loop,
            listening,
            arguments.job_id,
            arguments.secret,
            arguments.slot,
            self._process,
            on_frame=lambda peer, frame: self._slot.on_frame(peer, frame),
            on_connected=lambda generation: self._slot.on_peers_connected(generation),
            on_peer_lost=lambda peer, detail: self._slot.on_peer_lost(peer, detail),
            silence_timeout_ms=arguments.heartbeat_timeout_ms,
        )
        self._slot = self._make_slot(
            slot=arguments.slot,
            process=self._process,
            clock=SystemClock(),
            master=client,
            links=endpoint,
            heartbeat_interval_ms=arguments.status_interval_ms,
        )
        return client, endpoint

    def _registration(self, endpoint: Endpoint) -> Register:
        context = TaskContext.get()
        return Register(
            slot=self._arguments.slot,
            submission=self._arguments.submission,
            attempt=context.attemptNumber() if context is not None else 0,
            process=self._process,
            pid=os.getpid(),
            host=self._host,
            data_port=self._arguments.advertised_port or endpoint.port,
            python=platform.python_version(),
            penstock=penstock.__version__,
        )

    def _tune(self, client: ControlClient) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        slot = self._arguments.slot

        def send(subtask: int, lines: list[str], is_error: bool) -> None:
            client.send(Printed(slot, subtask, lines, is_error))

        sys.stdout = PrintedStream(sys.stdout, send, lambda: client.queued_bytes, is_error=False)
        sys.stderr = PrintedStream(sys.stderr, send, lambda: client.queued_bytes, is_error=True)
