"""Implements the driver's end of the control connections, one per slot process."""

from __future__ import annotations

import os
import socket
from typing import Callable

from penstock.network.control_codec import MessageOutbox, upward_decoder
from penstock.network.handshake import NONCE_BYTES, REFUSED, WELCOME, Identity, ListenerHandshake
from penstock.network.io_loop import IoLoop
from penstock.network.link import Link, Loss
from penstock.network.listener import Listener
from penstock.protocol.values.messages import Message

DRIVER_SLOT = -1


class ControlServer:
    """Implements `penstock.jobmaster.ports.SlotLinks`. `on_message(process, message)` and `on_lost(process,
    detail)` are called in the I/O thread; `on_lost` not for a link that this end has closed."""

    def __init__(
        self,
        loop: IoLoop,
        listening: socket.socket,
        job_id: str,
        secret: bytes,
        on_message: Callable[[str, Message], None],
        on_lost: Callable[[str, str], None],
        silence_timeout_ms: int,
    ) -> None:
        self._loop = loop
        self._identity = Identity(job_id, DRIVER_SLOT, "driver")
        self._secret = secret
        self._on_message = on_message
        self._on_lost = on_lost
        self._silence_timeout_ms = silence_timeout_ms
        self._links: dict[str, Link] = {}
        self._listener = Listener(loop, listening, self._on_accepted)
        self.port = self._listener.port

    # ---- from any thread

    def send(self, process: str, message: Message) -> None:
        link = self._links.get(process)
        if link is not None:
            link.send(message)

    def close(self, process: str) -> None:
        """Close a link; what was sent before still leaves."""
        link = self._links.pop(process, None)
        if link is not None:
            self._loop.call_soon(link.finish)

    def stop(self) -> None:
        """Close all links and stop listening."""
        for process in list(self._links):
            self.close(process)
        self._loop.call_soon(self._listener.close)

    # ---- in the I/O thread

    def _on_accepted(self, sock: socket.socket, address: str) -> None:
        handshake = ListenerHandshake(self._secret, os.urandom(NONCE_BYTES), self._identity, self._decide)
        Link(
            self._loop,
            sock,
            address,
            handshake,
            MessageOutbox(),
            upward_decoder(),
            self._on_ready,
            self._on_messages,
            self._on_link_lost,
            self._silence_timeout_ms,
        ).start()

    def _decide(self, dialler: Identity) -> tuple[int, str]:
        if dialler.process in self._links:
            return REFUSED, f"process {dialler.process} is connected already"
        return WELCOME, ""

    def _on_ready(self, link: Link, peer: Identity) -> None:
        self._links[peer.process] = link

    def _on_messages(self, link: Link, messages: list[Message]) -> None:
        assert link.peer is not None
        for message in messages:
            self._on_message(link.peer.process, message)

    def _on_link_lost(self, link: Link, loss: Loss) -> None:
        if link.peer is not None and self._links.get(link.peer.process) is link:
            del self._links[link.peer.process]
            self._on_lost(link.peer.process, loss.detail)
