"""Provides slots whose endpoints are connected over loopback, with everything that they report in one queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.network.endpoint import Endpoint
from penstock.network.io_loop import IoLoop
from penstock.network.listening import listen
from penstock.protocol.values.messages import Peer

SECRET = b"the secret of the job"
WAIT_S = 20.0


class Slot:
    """An endpoint whose callbacks end up in one queue."""

    def __init__(self, loop: IoLoop, slot: int, process: str | None = None, **options: Any) -> None:
        self.events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.slot = slot
        self.process = process or f"process-{slot}"
        self.endpoint = Endpoint(
            loop,
            listen("127.0.0.1", (range(1),), "taskmanager.data.bind-port", "taskmanager.bind-host"),
            options.pop("job_id", "job"),
            options.pop("secret", SECRET),
            slot,
            self.process,
            on_frame=lambda peer, frame: self.events.put(("frame", peer, frame)),
            on_connected=lambda generation: self.events.put(("connected", generation)),
            on_peer_lost=lambda peer, detail: self.events.put(("lost", peer, detail)),
            **options,
        )

    @property
    def peer(self) -> Peer:
        return Peer(self.slot, "127.0.0.1", self.endpoint.port, self.process)

    def next(self) -> tuple[Any, ...]:
        return self.events.get(timeout=WAIT_S)


MakeSlots = Callable[..., list[Slot]]


@pytest.fixture
def loop() -> Iterator[IoLoop]:
    loop = IoLoop("test-io")
    loop.start()
    yield loop
    loop.stop()


@pytest.fixture
def slots(loop: IoLoop) -> Iterator[MakeSlots]:
    """`slots(0, 1, ...)` makes endpoints that are closed at the end of the test."""
    made: list[Slot] = []

    def make(*numbers: int, **options: Any) -> list[Slot]:
        new = [Slot(loop, number, **options) for number in numbers]
        made.extend(new)
        return new

    yield make
    for slot in made:
        slot.endpoint.close()
