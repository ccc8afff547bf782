"""Binding to the first free port of a range given as an option."""

from __future__ import annotations

import errno
import socket


class PortError(Exception):
    """No port of the range can be used. The message names the option, the range and the way out."""


def parse_port_range(ports: str, option: str) -> range:
    """"0" (any free port), "50100" or "50100-50200", as in Flink."""
    first, dash, last = str(ports).strip().partition("-")
    try:
        parsed = range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise PortError(f'{option}: "{ports}" is neither a port nor a range of ports like 50100-50200') from None
    if not parsed or parsed.start < 0 or parsed.stop > 65536:
        raise PortError(f'{option}: "{ports}" is not a range of ports between 0 and 65535')
    return parsed


def listen(host: str, ports: str, option: str) -> socket.socket:
    """A listening, non-blocking socket on the first free port of the range. Raises `PortError`."""
    candidates = parse_port_range(ports, option)
    try:
        family, _, _, _, _ = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise PortError(f'cannot listen on "{host}": {error}; give an address of this machine') from error
    taken = None
    for port in candidates:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(128)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise PortError(f'cannot listen on "{host}", port {port}: {error.strerror or error}') from error
            taken = error
    which = f"port {ports} is" if len(candidates) == 1 else f"all ports of {ports} are"
    raise PortError(
        f'{option}: {which} taken or forbidden on "{host}" ({taken.strerror if taken else "no port"}); '
        f"give another port or a range like 50100-50200, or 0 for any free port"
    )
