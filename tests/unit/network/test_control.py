"""Connects slots with a driver over loopback: messages arrive whole, and strangers and taken ports are named."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from penstock.network.control_client import ControlClient
from penstock.network.control_codec import MessageError, MessageOutbox, downward_decoder, upward_decoder
from penstock.network.control_server import ControlServer
from penstock.network.handshake import Identity
from penstock.network.io_loop import IoLoop
from penstock.network.listening import PortError, listen
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.messages import (
    Deploy,
    Leave,
    Peer,
    Printed,
    Register,
    SplitsAssigned,
    StoreRequest,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.protocol.values.reasons import SubtaskFailureReason

WAIT_S = 20.0
G = Generation(5, 2)
UPWARD = [
    Register(0, 1, 0, "p0", 4711, "host", 50100, "3.11", "0.1"),
    Printed(1, 3, ["a", "ä"], is_error=True),
    SubtaskFailed(G, 0, SubtaskId(1, 2), "map", "ValueError: x", "Traceback ...", SubtaskFailureReason.PERMANENT),
    StoreRequest(0, 1, "shared/x", b"\x00\xff" * 1000),
]
DOWNWARD = [
    Deploy(G, 0, [Peer(0, "h", 1, "p"), Peer(1, "h", 2, "q")], b"plan", None),
    TriggerCheckpoint(G, Barrier(7, None, 1.25)),
    SplitsAssigned(G, SubtaskId(0, 1), [b"{}"], no_more=True),
    Leave("over"),
]


def encoded(messages: list[Any]) -> bytes:
    out = MessageOutbox()
    for message in messages:
        out.put(message)
    return b"".join(out.gather())


@pytest.mark.parametrize(("messages", "decoder"), [(UPWARD, upward_decoder), (DOWNWARD, downward_decoder)])
@pytest.mark.parametrize("step", [1, 13, 10_000])
def test_messages_survive_any_fragments(messages: list[Any], decoder: Callable[[], Any], step: int) -> None:
    wire, reader, came = encoded(messages), decoder(), []
    for at in range(0, len(wire), step):
        came += reader.feed(memoryview(wire)[at : at + step])
    assert came == messages


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",
        struct.pack("<I", 2**31 + 5),
        encoded([Leave("a downward message at the driver")]),
        struct.pack("<I", 9) + msgspec.msgpack.encode({"type": "X"}).ljust(9),
    ],
)
def test_anything_else_is_refused(garbage: bytes) -> None:
    with pytest.raises(MessageError):
        upward_decoder().feed(memoryview(garbage))


class Driver:
    def __init__(self, loop: IoLoop, secret: bytes = b"secret") -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.server = ControlServer(
            loop,
            listen("127.0.0.1", (range(1),), "jobmanager.rpc.bind-port", "jobmanager.bind-host"),
            "job",
            secret,
            lambda process, message: self.events.put(("message", process, message)),
            lambda process, detail: self.events.put(("lost", process, detail)),
            silence_timeout_ms=50_000,
        )

    def next(self) -> Any:
        return self.events.get(timeout=WAIT_S)


class Client:
    def __init__(
        self, loop: IoLoop, port: int, process: str = "p0", secret: bytes = b"secret", timeout_s: float = WAIT_S
    ) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.client = ControlClient(
            loop,
            "127.0.0.1",
            port,
            Identity("job", 0, process),
            secret,
            lambda message: self.events.put(message),
            lambda detail: self.events.put(("lost", detail)),
            silence_timeout_ms=50_000,
            connect_timeout_s=timeout_s,
        )

    def next(self) -> Any:
        return self.events.get(timeout=WAIT_S)


@pytest.fixture
def driver(loop: IoLoop) -> Iterator[Driver]:
    driver = Driver(loop)
    yield driver
    driver.server.stop()


def test_messages_go_both_ways(loop: IoLoop, driver: Driver) -> None:
    slot = Client(loop, driver.server.port)
    assert slot.client.wait_connected() == "127.0.0.1"
    for message in UPWARD:
        slot.client.send(message)
    assert [driver.next() for _ in UPWARD] == [("message", "p0", message) for message in UPWARD]
    for message in DOWNWARD:
        driver.server.send("p0", message)
    assert [slot.next() for _ in DOWNWARD] == DOWNWARD


def test_a_large_message_arrives(loop: IoLoop, driver: Driver) -> None:
    slot = Client(loop, driver.server.port)
    slot.client.wait_connected()
    plan = bytes(20_000_000)
    for _ in range(3):
        driver.server.send("p0", Deploy(G, 0, [], plan, None))
    for _ in range(3):
        assert slot.next().plan == plan


def test_what_was_sent_before_closing_arrives(loop: IoLoop, driver: Driver) -> None:
    slot = Client(loop, driver.server.port)
    slot.client.wait_connected()
    slot.client.send(Printed(0, 0, ["unread"]))
    driver.server.send("p0", Deploy(G, 0, [], bytes(5_000_000), None))
    driver.server.send("p0", Leave("the end"))
    driver.server.close("p0")
    assert len(slot.next().plan) == 5_000_000
    assert slot.next() == Leave("the end")
    assert slot.next()[0] == "lost"


def test_the_driver_hears_that_a_slot_is_gone(loop: IoLoop, driver: Driver) -> None:
    slot = Client(loop, driver.server.port)
    slot.client.wait_connected()
    slot.client.send(UPWARD[0])
    assert driver.next()[0] == "message"
    slot.client.close()
    assert driver.next()[:2] == ("lost", "p0")


def test_a_client_with_the_wrong_secret_gives_up_at_once(loop: IoLoop, driver: Driver) -> None:
    slot = Client(loop, driver.server.port, secret=b"guess")
    assert slot.client.wait_connected() is None
    assert "does not know this job's secret" in slot.next()[1]


def test_a_client_without_a_driver_gives_up_in_time(loop: IoLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    slot = Client(loop, port, timeout_s=0.3)
    assert slot.client.wait_connected() is None
    assert f"no connection to the driver at 127.0.0.1:{port}: cannot connect" in slot.next()[1]


def test_the_first_free_port_of_a_range_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ranges = (range(port, port + 1), range(port, min(port + 50, 65536)))
        with listen("127.0.0.1", ranges, "taskmanager.data.bind-port", "taskmanager.bind-host") as found:
            assert port < found.getsockname()[1] <= port + 50


def test_a_port_that_is_taken_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"data.bind-port: port {port} cannot be used .*in use.* or 0 for any"):
            listen("127.0.0.1", (range(port, port + 1),), "taskmanager.data.bind-port", "taskmanager.bind-host")


def test_ranges_that_are_taken_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"none of the ports {port},{port} can be used"):
            listen("127.0.0.1", (range(port, port + 1),) * 2, "jobmanager.rpc.bind-port", "jobmanager.bind-host")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_bind_host_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(PortError, match=f'taskmanager.bind-host: .*"{host}"'):
        listen(host, (range(1),), "taskmanager.data.bind-port", "taskmanager.bind-host")
