"""Finds ports for servers under test on the loopback interface."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10_240
_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(number: int, second_at: int = 0) -> list[int]:
    """Return ports that nobody listens at, and, with each, that nobody listens at the one `second_at` above it.

    They lie below those that the kernel gives to clients: between our look and the server's `bind`, a connection of
    anybody on this machine could be given one of those. Raises `OSError` where there are no free ones.
    """
    end = int(_CLIENTS.read_text(encoding="ascii").split()[0]) if _CLIENTS.exists() else 32_768
    found: list[int] = []
    for port in random.sample(range(LOWEST, end - second_at), end - second_at - LOWEST):
        if _is_free(port) and _is_free(port + second_at):
            found.append(port)
            if len(found) == number:
                return found
    raise OSError(f"there are no {number} free ports from {LOWEST} to {end} on the loopback interface")


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
