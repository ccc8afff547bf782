"""Records the way of a batch: each function of ours that holds rows or hands them on, from a source's reader in one
slot to the next chain in its own and in another one, over a real connection.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.pickling import dumps
from penstock.network.endpoint import Endpoint
from penstock.network.io_loop import IoLoop
from penstock.network.listening import listen
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Data
from penstock.protocol.values.messages import (
    Connected,
    Deploy,
    Message,
    Peer,
    ReachedEndOfData,
    Restore,
    Restored,
    SplitsAssigned,
    SplitsRequested,
    StartRun,
    SubtaskFailed,
)
from penstock.runtime.input.input_gate import OpenBatch
from penstock.runtime.process.slot import Slot
from penstock.runtime.process.threads import ThreadScheduler
from penstock.runtime.subtask.feeds import Portion
from penstock.storage.memory import MemoryStore
from tests.unit.runtime.jobs.small_job import ManualClock, graph_of

WAIT_S = 30.0
ROWS = 400
GENERATION = Generation(1, 1)
NUMBERS = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])
HOME = f"{Path(penstock.__file__).parent}/"
PACKAGES = ("runtime/", "network/", "protocol/", "operators/batches.py", "operators/columns/columnar_chain.py")
LEAVES = ("runtime/output/key_columns.py", "network/handshake.py", "network/control")
"""They compute with rows, or carry other bytes."""
PAYLOAD_BYTES = range(256, 65_536)


def holds_rows(value: Any, depth: int = 0) -> bool:
    match value:
        case pa.RecordBatch():
            return bool(value.num_rows)
        case bytes() | bytearray() | memoryview() | pa.Buffer():
            return len(value) in PAYLOAD_BYTES
        case Data() | Portion() | OpenBatch():
            return True
        case list() | tuple():
            return depth < 2 and any(holds_rows(inner, depth + 1) for inner in value[:4])
    return False


class Walk:
    """`names`: of each station, by file and qualified name, the variables that held rows."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self._stations: dict[CodeType, str | None] = {}

    def profile(self, frame: FrameType, event: str, value: Any) -> None:
        station = self._station(frame.f_code) if event in ("call", "return") else None
        if station is None:
            return
        names = {name for name, held in frame.f_locals.items() if name != "self" and holds_rows(held)}
        if names or (event == "return" and holds_rows(value)):
            self.names.setdefault(station, set()).update(names)
        if names and event == "call" and frame.f_back and (caller := self._station(frame.f_back.f_code)):
            self.names.setdefault(caller, set())

    def _station(self, code: CodeType) -> str | None:
        if code not in self._stations:
            path, inside = code.co_filename.removeprefix(HOME), code.co_filename.startswith(HOME)
            counts = inside and path.startswith(PACKAGES) and not path.startswith(LEAVES)
            counts = counts and not code.co_name.startswith(("__", "<"))
            self._stations[code] = f"{path} {code.co_qualname}" if counts else None
        return self._stations[code]


def generate(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays([pa.array(numbers % 8), pa.array(numbers)], schema=NUMBERS.schema)


def declare(env: StreamExecutionEnvironment) -> None:
    source = BatchGeneratorSource(generate, ROWS, NUMBERS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)
    numbers.key_by("key").sink_to(DiscardingSink())


class RealClock(ManualClock):
    def monotonic_ms(self) -> float:
        return time.monotonic() * 1_000


class PlayedMaster:
    """Plays the JobMaster of two slots."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bell = threading.Condition()

    def send(self, message: Message) -> None:
        with self.bell:
            self.messages.append(message)
            self.bell.notify_all()

    def wait(self, kind: type, count: int) -> None:
        def have_come() -> bool:
            failed = [message for message in self.messages if isinstance(message, SubtaskFailed)]
            assert not failed, failed[0].traceback
            return sum(isinstance(message, kind) for message in self.messages) >= count

        with self.bell:
            assert self.bell.wait_for(have_come, WAIT_S), f"no {count} {kind.__name__}"


def walk() -> Walk:
    """Run a job of a source in slot 0 and of keyed sinks in both, and return the way of its batches."""
    walked, master, loop = Walk(), PlayedMaster(), IoLoop("test-io")
    graph = graph_of(declare, 2)
    slots: list[Slot] = []
    endpoints: list[Endpoint] = []
    for index in range(2):
        endpoint = Endpoint(
            loop,
            listen("127.0.0.1", (range(1),), "taskmanager.data.bind-port", "taskmanager.bind-host"),
            "job",
            b"the secret of the job",
            index,
            f"process-{index}",
            on_frame=lambda peer, frame, index=index: slots[index].on_frame(peer, frame),  # type: ignore[misc]
            on_connected=lambda generation, index=index: slots[index].on_peers_connected(generation),  # type: ignore[misc]
            on_peer_lost=lambda peer, detail, index=index: slots[index].on_peer_lost(peer, detail),  # type: ignore[misc]
        )
        endpoints.append(endpoint)
        new_store, new_name = (lambda root, configuration: MemoryStore()), (lambda: "name")
        slots.append(Slot(index, RealClock(), master, endpoint, ThreadScheduler(), new_store, new_name))
    threading.setprofile(walked.profile)
    try:
        loop.start()
        loop.call_soon(partial(sys.setprofile, walked.profile))
        peers = [
            Peer(index, "127.0.0.1", endpoint.port, f"process-{index}") for index, endpoint in enumerate(endpoints)
        ]
        plan = dumps(DeploymentPlan("job", graph, Configuration(), "inc", "memory", True))
        for slot in slots:
            slot.on_message(Deploy(GENERATION, slot.index, peers, plan, None))
        master.wait(Connected, 2)
        for message, answer, count in ((Restore(GENERATION), Restored, 2), (StartRun(GENERATION), SplitsRequested, 1)):
            for slot in slots:
                slot.on_message(message)
            master.wait(answer, count)
        splits = graph.vertices[0].operators[0].function.create_enumerator(1, None).next_splits(0)
        slots[0].on_message(SplitsAssigned(GENERATION, SubtaskId(0, 0), splits, True))
        master.wait(ReachedEndOfData, 3)
    finally:
        threading.setprofile(None)
        for slot in slots:
            slot.close()
        for endpoint in endpoints:
            endpoint.close()
        loop.stop()
    return walked
