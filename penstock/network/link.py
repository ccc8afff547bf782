"""Implements one authenticated TCP connection in an I/O loop, for any kind of item.

It reads whenever there is something to read, with one `recv` per readiness. `send` may be called from any thread: if
nothing waits, the calling thread sends at once, which saves a thread hop; what the socket does not take is left to
the I/O thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, Protocol

from penstock.network.handshake import (
    DiallerHandshake,
    HandshakeError,
    Identity,
    ListenerHandshake,
    NotYet,
)
from penstock.network.io_loop import IoLoop

log = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024
HANDSHAKE_TIMEOUT_S = 10.0
FINISH_TIMEOUT_S = 1.0


class LinkOutbox(Protocol):
    queued_bytes: int

    def __bool__(self) -> bool: ...
    def put(self, item: Any) -> None: ...
    def gather(self) -> list[memoryview]: ...
    def advance(self, sent_bytes: int) -> None: ...


class LinkDecoder(Protocol):
    def feed(self, received: memoryview) -> list[Any]: ...


@dataclass(frozen=True)
class Loss:
    """Describes why a connection ended. `is_strange`: the other end is not one of ours, or broke the rules."""

    detail: str
    is_strange: bool = False


class Link:
    """Sends and receives items. `on_ready(link, peer)`, `on_items(link, items)` and `on_lost(link, error)` are called
    in the I/O thread; `on_lost` once, also if the handshake fails, but not after `close()`.
    """

    def __init__(
        self,
        loop: IoLoop,
        sock: socket.socket,
        address: str,
        handshake: DiallerHandshake | ListenerHandshake,
        outbox: LinkOutbox,
        decoder: LinkDecoder,
        on_ready: Callable[[Link, Identity], None],
        on_items: Callable[[Link, list[Any]], None],
        on_lost: Callable[[Link, Loss], None],
        silence_timeout_ms: int | None = None,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self.address = address
        self._handshake = handshake
        self._outbox = outbox
        self._decoder = decoder
        self._on_ready = on_ready
        self._on_items = on_items
        self._on_lost = on_lost
        self._received = memoryview(bytearray(4096))
        self._lock = threading.Lock()
        self._writes_left_to_loop = True  # no other thread writes until the handshake is over
        self._connecting = isinstance(handshake, DiallerHandshake)
        self._opening = b""  # bytes of the handshake that have not left
        self._closed = False
        self._finishing = False
        self.peer: Identity | None = None
        sock.setblocking(False)
        _tune(sock, silence_timeout_ms)

    # ---- from any thread

    def send(self, item: Any) -> None:
        """Send without blocking. Does nothing if the link is gone."""
        with self._lock:
            if self._closed:
                return
            self._outbox.put(item)
            if self._writes_left_to_loop:
                return
            if self._flush():
                return
            self._writes_left_to_loop = True
        self._loop.call_soon(self._watch)

    @property
    def queued_bytes(self) -> int:
        return self._outbox.queued_bytes

    # ---- in the I/O thread

    def start(self) -> None:
        if self._connecting:
            self._loop.register(self._sock, selectors.EVENT_WRITE, self._on_event)
        else:
            self._loop.register(self._sock, selectors.EVENT_READ, self._on_event)
        self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._check_handshake)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(KeyError, ValueError):
            self._loop.unregister(self._sock)
        self._sock.close()

    def finish(self) -> None:
        """Close once everything sent has left and the other end has closed, too, or after `FINISH_TIMEOUT_S`. Closing
        with unread bytes would reset the connection and discard what the other end has not read yet.
        """
        if self._closed or self.peer is None:
            self.close()
            return
        self._finishing = True
        if not self._writes_left_to_loop:
            self._end_writing()
        self._loop.call_later(FINISH_TIMEOUT_S, self.close)

    def _end_writing(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()

    @property
    def local_host(self) -> str:
        """Return the address of this machine that the other end sees."""
        return str(self._sock.getsockname()[0])

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _lose(self, detail: str, is_strange: bool = False) -> None:
        if self._closed:
            return
        if is_strange:
            log.warning("closing the connection with %s: %s", self.address, detail)
        self.close()
        if not self._finishing:
            self._on_lost(self, Loss(detail, is_strange))

    def _check_handshake(self) -> None:
        if self.peer is None:
            self._lose(f"the handshake was not over after {HANDSHAKE_TIMEOUT_S:.0f} s")

    def _watch(self) -> None:
        if not self._closed:
            busy = self._opening or self._connecting or (self.peer is not None and self._writes_left_to_loop)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if busy else 0)
            self._loop.modify(self._sock, events, self._on_event)

    def _on_event(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._on_writable()
        if events & selectors.EVENT_READ and not self._closed:
            self._on_readable()

    def _on_writable(self) -> None:
        if self._connecting:
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._lose(f"cannot connect: {_describe(error)}")
                return
            self._connecting = False
            assert isinstance(self._handshake, DiallerHandshake)
            self._opening = self._handshake.start()
        if self._opening:
            self._send_opening()
        elif self.peer is not None:
            with self._lock:
                self._writes_left_to_loop = not self._flush()
            if self._finishing and not self._writes_left_to_loop:
                self._end_writing()
        self._watch()

    def _send_opening(self) -> None:
        try:
            self._opening = self._opening[self._sock.send(self._opening) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(_describe(error))

    def _flush(self) -> bool:
        """Send, under the lock, until nothing is left or the socket takes no more. Return True when nothing is left, or
        the socket is broken, which the next read reports.
        """
        try:
            while buffers := self._outbox.gather():
                self._outbox.advance(self._sock.sendmsg(buffers))
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _on_readable(self) -> None:
        try:
            count = self._sock.recv_into(self._received)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(_describe(error))
            return
        if count == 0:
            self._lose("the other end closed the connection")
            return
        received = self._received[:count]
        if self.peer is None:
            self._shake_hands(received)
        else:
            self._decode(received)

    def _shake_hands(self, received: memoryview) -> None:
        try:
            self._opening += self._handshake.feed(received)
        except NotYet as error:
            self._lose(str(error))
            return
        except HandshakeError as error:
            self._lose(str(error), is_strange=True)
            return
        if self._opening:
            self._send_opening()
        if self._closed:
            return
        peer = self._handshake.peer
        if peer is None:
            if getattr(self._handshake, "verdict", None) is not None:
                self._lose("it was sent away")
            elif self._opening:
                self._watch()
            return
        self.peer = peer
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        with self._lock:
            self._writes_left_to_loop = bool(self._opening) or not self._flush()
        self._watch()
        rest = self._handshake.rest
        self._on_ready(self, peer)
        if rest and not self._closed:
            self._decode(memoryview(rest))

    def _decode(self, received: memoryview) -> None:
        try:
            items = self._decoder.feed(received)
        except Exception as error:
            self._lose(str(error), is_strange=True)
            return
        if items and not self._finishing:
            self._on_items(self, items)


def resolve(host: str, port: int) -> tuple[int, Any]:
    """Return (address family, address). May ask a name server. Raises OSError if the host has no address."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, address


def dial(family: int, address: Any) -> socket.socket:
    """Return a socket that is connecting. Raises OSError if that fails at once."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address)
    except BlockingIOError:
        pass
    except OSError:
        sock.close()
        raise
    return sock


def _tune(sock: socket.socket, silence_timeout_ms: int | None) -> None:
    """Set socket options. Without NODELAY a barrier waits up to 40 ms for an acknowledgement. The user timeout makes
    the kernel end a connection whose other end acknowledges nothing any more (a machine that is gone sends no reset).
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if silence_timeout_ms is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        seconds = max(1, silence_timeout_ms // 3000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_timeout_ms)


def _describe(error: int | OSError) -> str:
    code = error if isinstance(error, int) else error.errno
    return os.strerror(code) if code else str(error)
