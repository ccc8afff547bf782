"""Binds to the first free port of the ranges that an option gives."""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Sequence


class PortError(Exception):
    """Signals that none of the ports can be used. The message names the option, the ports and the way out."""


def listen(host: str, ports: Sequence[range], option: str, host_option: str) -> socket.socket:
    """Return a listening, non-blocking socket on the first free port; port 0 is any free one.

    `option` and `host_option` are the keys by which the user chose `ports` and `host`. Raises `PortError`.
    """
    try:
        family, _, _, _, _ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise PortError(f'{host_option}: "{host}" has no address here ({error.strerror or error})') from error
    taken = "there is no port in it"
    for port in itertools.chain(*ports):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(128)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            taken = error.strerror or str(error)
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise PortError(
                    f'{host_option}: cannot listen on "{host}", port {port} ({taken}); '
                    f"it must be an address of this machine"
                ) from error
    text = ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in ports if r)
    which = f"port {text} cannot" if sum(map(len, ports)) == 1 else f"none of the ports {text} can"
    raise PortError(
        f'{option}: {which} be used on "{host}" ({taken}); '
        f"give another port, a range like 50100-50200, or 0 for any free port"
    )
