"""Accepts connections in an I/O loop."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
from typing import Callable

from penstock.network.io_loop import IoLoop

log = logging.getLogger(__name__)

_ACCEPT_AGAIN_S = 0.5


class Listener:
    """Accepts connections. `on_accepted(socket, "host:port")` is called in the I/O thread."""

    def __init__(self, loop: IoLoop, sock: socket.socket, on_accepted: Callable[[socket.socket, str], None]) -> None:
        self._loop = loop
        self._sock = sock
        self._on_accepted = on_accepted
        self._closed = False
        self.port: int = sock.getsockname()[1]
        loop.call_soon(self._watch)

    def close(self) -> None:
        """Stop listening. Call it in the I/O thread."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(KeyError, ValueError):
                self._loop.unregister(self._sock)
            self._sock.close()

    def _watch(self) -> None:
        if not self._closed:
            self._loop.register(self._sock, selectors.EVENT_READ, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # out of file descriptors: ignoring the socket for a while is better than spinning
            log.warning("cannot accept a connection on port %d: %s", self.port, error)
            self._loop.unregister(self._sock)
            self._loop.call_later(_ACCEPT_AGAIN_S, self._watch)
            return
        self._on_accepted(sock, f"{address[0]}:{address[1]}")
