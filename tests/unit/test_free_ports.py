"""Ports for servers under test: nobody has them, and the kernel gives them to no client."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.ports import LOWEST, free_ports


def test_ports_lie_below_those_that_clients_get() -> None:
    clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(500, second_at=10_000)
    assert len(set(ports)) == 500
    assert min(ports) >= LOWEST and max(ports) + 10_000 < clients


@pytest.mark.parametrize("taken", [0, 10_000], ids=["the port", "its second one"])
def test_a_port_that_is_taken_is_not_returned(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = free_ports(2, second_at=10_000)
    monkeypatch.setattr(random, "sample", lambda *_: [first, other])
    with ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.1", first + taken)))
        assert free_ports(1, second_at=10_000) == [other]
        with pytest.raises(OSError, match="no 2 free ports"):
            free_ports(2, second_at=10_000)
