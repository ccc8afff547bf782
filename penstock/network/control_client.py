"""Implements a slot's end of its control connection."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable

from penstock.network.control_codec import MessageOutbox, downward_decoder
from penstock.network.handshake import NONCE_BYTES, DiallerHandshake, Identity
from penstock.network.io_loop import IoLoop
from penstock.network.link import HANDSHAKE_TIMEOUT_S, Link, Loss, dial, resolve
from penstock.protocol.values.messages import Message

_REDIAL_S = 0.1


class ControlClient:
    """Implements `penstock.runtime.process.slot_ports.MasterLink`. `on_message(message)` and `on_lost(detail)` are
    called in the I/O thread; `on_lost` once, also if no connection is established within `connect_timeout_s`."""

    def __init__(
        self,
        loop: IoLoop,
        host: str,
        port: int,
        identity: Identity,
        secret: bytes,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
        silence_timeout_ms: int,
        connect_timeout_s: float = 30.0,
    ) -> None:
        self._loop = loop
        self._where = f"the driver at {host}:{port}"
        self._address = resolve(host, port)
        self._identity = identity
        self._secret = secret
        self._on_message = on_message
        self._on_lost = on_lost
        self._silence_timeout_ms = silence_timeout_ms
        self._connect_timeout_s = connect_timeout_s
        self._deadline = time.monotonic() + connect_timeout_s
        self._link: Link | None = None
        self._over = threading.Event()  # connected, or given up
        self._local_host: str | None = None
        loop.call_soon(self._dial)

    # ---- from any thread

    def wait_connected(self) -> str | None:
        """Wait until connected or given up. Return the address of this machine that the driver sees, or None."""
        self._over.wait(self._connect_timeout_s + HANDSHAKE_TIMEOUT_S)
        return self._local_host

    def send(self, message: Message) -> None:
        """Send without blocking. Before the connection is established and after it is lost it does nothing."""
        link = self._link
        if link is not None:
            link.send(message)

    @property
    def queued_bytes(self) -> int:
        """Return the number of sent bytes that have not left this process."""
        link = self._link
        return 0 if link is None else link.queued_bytes

    def close(self) -> None:
        """Close the connection; what was sent before still leaves."""
        self._loop.call_soon(self._finish)

    # ---- in the I/O thread

    def _dial(self) -> None:
        try:
            sock = dial(*self._address)
        except OSError as error:
            self._on_link_lost(None, Loss(str(error)))
            return
        handshake = DiallerHandshake(self._secret, os.urandom(NONCE_BYTES), self._identity)
        Link(
            self._loop,
            sock,
            self._where,
            handshake,
            MessageOutbox(),
            downward_decoder(),
            self._on_ready,
            self._on_messages,
            self._on_link_lost,
            self._silence_timeout_ms,
        ).start()

    def _finish(self) -> None:
        self._deadline = 0.0
        if self._link is not None:
            self._link.finish()

    def _on_ready(self, link: Link, _driver: Identity) -> None:
        self._local_host = link.local_host
        self._link = link
        self._over.set()

    def _on_messages(self, _link: Link, messages: list[Any]) -> None:
        for message in messages:
            self._on_message(message)

    def _on_link_lost(self, link: Link | None, loss: Loss) -> None:
        if self._link is None and not loss.is_strange and time.monotonic() < self._deadline:
            self._loop.call_later(_REDIAL_S, self._dial)
            return
        connected, self._link = self._link is not None, None
        self._over.set()
        what = "the connection to" if connected else "no connection to"
        self._on_lost(f"{what} {self._where}{' ended' if connected else ''}: {loss.detail}")
