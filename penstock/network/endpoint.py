"""Connects a slot to its peers: one data connection per pair of slots and generation. The slot with the higher number
dials.

A spare learns which slot it plays from the list of peers that it is to connect.

The dialler retries until the other slot has reached the same generation. The listener refuses a generation that is over
and a process that is not the one the driver named. After `disconnect()` no frame of the old connections is delivered
any more.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
import time
from typing import Any, Callable

from penstock.network.connection import Outbox
from penstock.network.frame_codec import FrameDecoder
from penstock.network.handshake import (
    LATER,
    NONCE_BYTES,
    REFUSED,
    WELCOME,
    DiallerHandshake,
    Identity,
    ListenerHandshake,
)
from penstock.network.io_loop import IoLoop
from penstock.network.link import Link, Loss, dial, resolve
from penstock.network.listener import Listener
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.messages import Peer

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30.0
_REDIAL_S_MIN, _REDIAL_S_MAX = 0.005, 0.2


class Endpoint:
    """Implements `penstock.runtime.process.slot_ports.DataLinks`.

    `on_frame(peer_slot, frame)`, `on_connected(generation)` and `on_peer_lost(peer_slot, detail)` are called in the I/O
    thread and must return at once. `connect` and `disconnect` wait for an `on_frame` that is running: hold no lock
    that it takes.
    """

    def __init__(
        self,
        loop: IoLoop,
        listening: socket.socket,
        job_id: str,
        secret: bytes,
        slot: int,
        process: str,
        on_frame: Callable[[int, Frame], None],
        on_connected: Callable[[Generation], None],
        on_peer_lost: Callable[[int, str], None],
        silence_timeout_ms: int = 50_000,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._loop = loop
        self._identity = Identity(job_id, slot, process)
        self._secret = secret
        self._on_frame = on_frame
        self._on_connected = on_connected
        self._on_peer_lost = on_peer_lost
        self._silence_timeout_ms = silence_timeout_ms
        self._connect_timeout_s = connect_timeout_s
        self._delivery = threading.RLock()
        self._generation: Generation | None = None
        self._wanted: dict[int, Peer] = {}
        self._links: dict[int, Link] = {}
        self._last_refusal: dict[int, str] = {}
        self._announced = False
        self._listener = Listener(loop, listening, self._on_accepted)
        self.port = self._listener.port

    # ---- from any thread

    def connect(self, peers: list[Peer], generation: Generation) -> None:
        """Drop all connections and connect to `peers`. Our slot number is the entry of this process in `peers`, else
        the one given to the constructor. `on_connected` reports success; `on_peer_lost` a peer that cannot be connected
        within the time limit.
        """
        with self._delivery:
            self._drop()
            self._generation = generation
            own = next((p.slot for p in peers if p.process == self._identity.process), self._identity.slot)
            self._identity = Identity(self._identity.job_id, own, self._identity.process)
            self._wanted = {peer.slot: peer for peer in peers if peer.slot != self._identity.slot}
            self._announced = False
            self._last_refusal = {}
        deadline = time.monotonic() + self._connect_timeout_s
        for peer in peers:
            if peer.slot < self._identity.slot:
                try:
                    address = resolve(peer.host, peer.data_port)
                except OSError as error:
                    lost = f'slot {peer.slot} advertises "{peer.host}", which has no address here ({error})'
                    self._loop.call_soon(functools.partial(self._give_up, generation, peer.slot, lost))
                    continue
                self._loop.call_soon(functools.partial(self._dial, generation, peer, address, deadline, _REDIAL_S_MIN))
        self._loop.call_soon(functools.partial(self._announce, generation))
        self._loop.call_soon(
            lambda: self._loop.call_later(self._connect_timeout_s, lambda: self._check_connected(generation))
        )

    def send(self, peer_slot: int, frame: Frame) -> None:
        """Send without blocking. Does nothing if the peer is not connected."""
        link = self._links.get(peer_slot)
        if link is not None:
            link.send(frame)

    def disconnect(self) -> None:
        with self._delivery:
            self._drop()
            self._generation = None
            self._wanted = {}

    def close(self) -> None:
        """Drop all connections and stop listening."""
        self.disconnect()
        self._loop.call_soon(self._listener.close)

    def _drop(self) -> None:
        links, self._links = self._links, {}
        for link in links.values():
            self._loop.call_soon(link.close)

    # ---- dialling, in the I/O thread

    def _dial(self, generation: Generation, peer: Peer, address: Any, deadline: float, wait_s: float) -> None:
        if self._generation != generation or peer.slot in self._links:
            return
        where = f"slot {peer.slot} at {peer.host}:{peer.data_port}"

        def lost(link: Link | None, loss: Loss) -> None:
            if link is not None and self._links.get(peer.slot) is link:
                self._on_lost(peer.slot, link, loss)
            elif time.monotonic() >= deadline:
                self._give_up(generation, peer.slot, f"no connection to {where}: {loss.detail}")
            else:
                self._last_refusal[peer.slot] = loss.detail
                again = functools.partial(
                    self._dial, generation, peer, address, deadline, min(wait_s * 1.5, _REDIAL_S_MAX)
                )
                self._loop.call_later(wait_s, again)

        try:
            sock = dial(*address)
        except OSError as error:
            lost(None, Loss(str(error)))
            return
        identity = Identity(self._identity.job_id, self._identity.slot, self._identity.process, generation)
        handshake = DiallerHandshake(self._secret, os.urandom(NONCE_BYTES), identity)
        self._open(sock, where, handshake, functools.partial(self._on_dialled, generation, peer), lost)

    def _on_dialled(self, generation: Generation, peer: Peer, link: Link, identity: Identity) -> None:
        with self._delivery:
            if (identity.slot, identity.process) != (peer.slot, peer.process):
                self._last_refusal[peer.slot] = f"process {identity.process} of slot {identity.slot} answers there"
                self._loop.call_soon(link.close)
                return
            if self._generation != generation:
                self._loop.call_soon(link.close)
                return
            self._links[peer.slot] = link
        self._announce(generation)

    # ---- being dialled, in the I/O thread

    def _on_accepted(self, sock: socket.socket, address: str) -> None:
        handshake = ListenerHandshake(self._secret, os.urandom(NONCE_BYTES), self._identity, self._decide)
        self._open(sock, address, handshake, self._on_welcomed, self._on_incoming_lost)

    def _decide(self, dialler: Identity) -> tuple[int, str]:
        ours, theirs = self._generation, dialler.generation
        if theirs is None or (ours is not None and theirs < ours):
            return REFUSED, f"generation {_text(theirs)} is over, this slot is in {_text(ours)}"
        if ours is None or theirs > ours:
            return LATER, f"slot {self._identity.slot} has not reached generation {_text(theirs)}"
        wanted = self._wanted.get(dialler.slot)
        if wanted is None or wanted.process != dialler.process:
            return REFUSED, f"process {dialler.process} is not slot {dialler.slot} of generation {_text(ours)}"
        if dialler.slot in self._links:
            return REFUSED, f"slot {dialler.slot} is connected already"
        return WELCOME, ""

    def _on_welcomed(self, link: Link, dialler: Identity) -> None:
        with self._delivery:
            if self._generation != dialler.generation or dialler.generation is None:
                self._loop.call_soon(link.close)
                return
            self._links[dialler.slot] = link
        self._announce(dialler.generation)

    def _on_incoming_lost(self, link: Link, loss: Loss) -> None:
        if link.peer is not None:
            self._on_lost(link.peer.slot, link, loss)

    # ---- both, in the I/O thread

    def _open(
        self,
        sock: socket.socket,
        address: str,
        handshake: DiallerHandshake | ListenerHandshake,
        on_ready: Callable[[Link, Identity], None],
        on_lost: Callable[[Link, Loss], None],
    ) -> None:
        Link(
            self._loop,
            sock,
            address,
            handshake,
            Outbox(),
            FrameDecoder(),
            on_ready,
            self._on_frames,
            on_lost,
            self._silence_timeout_ms,
        ).start()

    def _on_frames(self, link: Link, frames: list[Frame]) -> None:
        assert link.peer is not None
        slot = link.peer.slot
        with self._delivery:
            for frame in frames:
                if self._links.get(slot) is not link:
                    return
                self._on_frame(slot, frame)

    def _announce(self, generation: Generation) -> None:
        with self._delivery:
            if self._generation != generation or self._announced or self._links.keys() != self._wanted.keys():
                return
            self._announced = True
        self._on_connected(generation)

    def _on_lost(self, slot: int, link: Link, loss: Loss) -> None:
        with self._delivery:
            if self._links.get(slot) is not link:
                return
            del self._links[slot]
        self._on_peer_lost(slot, f"the data connection to slot {slot} ({link.address}) ended: {loss.detail}")

    def _give_up(self, generation: Generation, slot: int, detail: str) -> None:
        with self._delivery:
            if self._generation != generation or slot not in self._wanted:
                return
            del self._wanted[slot]
        self._on_peer_lost(slot, detail)

    def _check_connected(self, generation: Generation) -> None:
        if self._generation != generation or self._announced:
            return
        for slot in [slot for slot in self._wanted if slot not in self._links]:
            peer = self._wanted[slot]
            why = self._last_refusal.get(slot, "it did not dial")
            where = f"slot {slot} ({peer.host}:{peer.data_port})"
            self._give_up(generation, slot, f"no connection with {where} after {self._connect_timeout_s:.0f} s: {why}")


def _text(generation: Generation | None) -> str:
    return "none" if generation is None else f"{generation.fence}.{generation.counter}"
