"""Runs a slot's process: what happens inside the Spark task until the slot leaves.

Spark never gets the living process back, with our threads and settings, for the user's next job: a slot that leaves by
order ends its task as a success and its process with it (`task_end.py`), any other end is that of the process. An error
before the slot has registered is raised, so that it can be read in the driver.

The process plays one slot, and further ones if the driver asks (`Host`) because Spark has no place for them. Each has
its connections and its id; they share the interpreter and the I/O thread. A hosted slot comes and goes; the process
ends with the slot that it was started for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import platform
import queue
import secrets
import sys
import threading
import time
from typing import Any, Callable

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

import penstock
from penstock.common.program.program_classes import become_program
from penstock.network.control_client import ControlClient
from penstock.network.endpoint import Endpoint
from penstock.network.handshake import Identity
from penstock.network.io_loop import IoLoop
from penstock.network.listening import listen
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Host, Leave, Left, Message, Printed, Register
from penstock.spark.process.printed_stream import PrintedStream
from penstock.spark.process.process_title import set_title
from penstock.spark.process.slot_files import prepare
from penstock.spark.process.slot_task import SlotArguments
from penstock.spark.process.system_clock import SystemClock
from penstock.spark.process.task_end import end_after_return

log = logging.getLogger(__name__)

# Measured: with the default of 5 ms a busy thread delays each hop of a barrier by that much; 0.5 ms costs 4 %.
SWITCH_INTERVAL_S = 0.0005
# Rows become tuples by the thousand: with the default (700) the collector runs several times per batch.
GC_THRESHOLDS = (100_000, 20, 50)
# Spark's driver may be busy; a driver that has died closes the connection at once.
_CANCEL_S_MAX = 30.0
NO_GENERATION = Generation(0, 0)

CLOSED, LOST = "closed", "lost"

MakeSlot = Callable[..., Any]
"""`(slot=, process=, clock=, master=, links=, heartbeat_interval_ms=)` builds what handles messages and frames: it has
the methods of `penstock.runtime.process.slot.Slot`, and they are called by the I/O thread."""


def main(arguments: SlotArguments) -> None:
    """Run a real slot."""
    from penstock.runtime.process.threads import start_slot

    become_program()
    prepare(arguments.files)
    SlotProcess(arguments, start_slot).run()


def import_ahead() -> None:
    """Import the slow modules that deployments need: 0.3 s of CPU, which restores would wait for."""
    import penstock.datastream.connectors.file_system  # noqa: F401

    # pyarrow imports pandas, where that is installed, as soon as it is given an array.
    pa.array(np.empty(0, np.int64))


class SlotMember:
    """Connects one slot that a process plays: its connection to the driver, its data connections, and the slot itself.

    `on_end(member, CLOSED or LOST, detail)` and `on_host(message)` are called in the I/O thread. Raises
    `ConnectionError` if the driver cannot be reached.
    """

    def __init__(
        self,
        arguments: SlotArguments,
        make_slot: MakeSlot,
        loop: IoLoop,
        on_end: Callable[[SlotMember, str, str], None],
        on_host: Callable[[Host], None],
    ) -> None:
        self.arguments = arguments
        self.is_leaving = False
        self._make_slot = make_slot
        self._loop = loop
        self._on_end = on_end
        self._on_host = on_host
        self._process = secrets.token_hex(8)
        self._slot: Any = None
        self._failure = ""
        self.client = self._connect()
        self.endpoint = self._listen()
        self._slot = make_slot(
            slot=arguments.slot,
            process=self._process,
            clock=SystemClock(),
            master=self.client,
            links=self.endpoint,
            heartbeat_interval_ms=arguments.status_interval_ms,
        )

    def register(self) -> None:
        context = TaskContext.get()
        self.client.send(
            Register(
                slot=self.arguments.slot,
                submission=self.arguments.submission,
                attempt=context.attemptNumber() if context is not None else 0,
                process=self._process,
                pid=os.getpid(),
                host=self._host,
                data_port=self.arguments.advertised_port or self.endpoint.port,
                python=platform.python_version(),
                penstock=penstock.__version__,
                relieves=self.arguments.relieves,
                hosted=self.arguments.hosted,
            )
        )

    def report_left(self) -> None:
        self.client.send(Left(NO_GENERATION, self.arguments.slot))

    def close(self) -> None:
        """Close the slot's connections; what was sent before still leaves."""
        self.client.close()
        self.endpoint.close()

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Leave):
            self.is_leaving = True
            self._slot.close(lambda: self._on_end(self, CLOSED, message.message))
        elif isinstance(message, Host):
            self._on_host(message)
        else:
            self._slot.on_message(message)

    def _on_master_lost(self, detail: str) -> None:
        self._failure = detail
        if self._slot is not None:
            self._slot.on_master_lost(detail)
        self._on_end(self, LOST, detail)

    def _connect(self) -> ControlClient:
        arguments = self.arguments
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
            raise ConnectionError(f"slot {arguments.slot}: {self._failure}")
        self._host = arguments.advertised_host or seen_by_driver
        return client

    def _listen(self) -> Endpoint:
        arguments = self.arguments
        listening = listen(
            arguments.bind_host or self._host,
            tuple(range(first, last + 1) for first, last in arguments.bind_ports),
            arguments.bind_ports_option,
            "taskmanager.bind-host",
        )
        return Endpoint(
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


class SlotProcess:
    """Runs the slot that the process was started for, and those that it hosts."""

    def __init__(self, arguments: SlotArguments, make_slot: MakeSlot) -> None:
        self._arguments = arguments
        self._make_slot = make_slot
        self._loop = IoLoop("penstock-io")
        self._ends: queue.SimpleQueue[tuple[SlotMember, str, str]] = queue.SimpleQueue()
        self._hosted: set[SlotMember] = set()

    def run(self) -> None:
        """Run until the slot leaves. Return if the process ends with its task, else end it. Raises what keeps the slot
        from registering.
        """
        slot = self._arguments.slot
        set_title(f"penstock: {self._arguments.job_name} slot {slot}", f"penstock-{slot}")
        self._loop.start()
        try:
            own = self._member(self._arguments)
        except BaseException:
            self._loop.stop()
            raise
        self._tune(own.client)
        own.register()
        import_ahead()
        while True:
            member, kind, detail = self._ends.get()
            if member is own:
                break
            self._release(member, kind)
        if kind == CLOSED:
            own.report_left()
            self._wait_for_driver(own)
        elif not own.is_leaving:
            name = self._arguments.job_name
            # As one piece: other slots write at the same moment.
            with contextlib.suppress(OSError):
                os.write(2, f"penstock: slot {self._arguments.slot} of job {name!r} ends: {detail}\n".encode())
        if own.is_leaving and end_after_return():
            return
        time.sleep(self._arguments.linger_s)
        os._exit(0 if own.is_leaving else 1)

    def _member(self, arguments: SlotArguments) -> SlotMember:
        return SlotMember(arguments, self._make_slot, self._loop, self._on_end, self._host)

    def _on_end(self, member: SlotMember, kind: str, detail: str) -> None:
        self._ends.put((member, kind, detail))

    def _release(self, member: SlotMember, kind: str) -> None:
        if kind == CLOSED:
            member.report_left()
        member.close()
        self._hosted.discard(member)

    def _wait_for_driver(self, own: SlotMember) -> None:
        """Wait until hosted slots have left, too, and the driver closes the connection: it does not submit the slot
        again when its task ends.
        """
        deadline = time.monotonic() + _CANCEL_S_MAX
        is_connected = True
        with contextlib.suppress(queue.Empty):
            while is_connected or self._hosted:
                member, kind, _ = self._ends.get(timeout=max(0.0, deadline - time.monotonic()))
                if member is own:
                    is_connected = False
                else:
                    self._release(member, kind)

    def _host(self, message: Host) -> None:
        arguments = dataclasses.replace(
            self._arguments, slot=message.slot, submission=message.submission, relieves=message.relieves, hosted=True
        )

        def start() -> None:
            try:
                member = self._member(arguments)
            except Exception as error:  # the driver asks another process when this one does not register the slot
                log.warning("slot %d cannot be played here: %s", message.slot, error)
                return
            self._hosted.add(member)
            member.register()

        threading.Thread(target=start, name=f"penstock-host-{message.slot}", daemon=True).start()

    def _tune(self, client: ControlClient) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        slot = self._arguments.slot

        def send(subtask: int, lines: list[str], is_error: bool) -> None:
            client.send(Printed(slot, subtask, lines, is_error))

        sys.stdout = PrintedStream(sys.stdout, send, lambda: client.queued_bytes, is_error=False)
        sys.stderr = PrintedStream(sys.stderr, send, lambda: client.queued_bytes, is_error=True)
