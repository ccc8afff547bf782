"""Proves the job's secret at both ends of a connection before anything else is read (sans-IO).

    dialler  -> listener   magic, version, nonce of the dialler
    listener -> dialler    magic, version, nonce of the listener, its proof, its identity
    dialler  -> listener   its proof, its identity
    listener -> dialler    verdict: welcome, later, or refused

A proof is HMAC-SHA256 over both nonces, the role and the identity, under the secret: it cannot be made without the
secret, replayed, or reflected. An identity is decoded only after its proof has been checked. Nonces come from the
caller.
"""

from __future__ import annotations

import hmac
import struct
from typing import Callable

import msgspec

from penstock.protocol.values.elements import Generation

NONCE_BYTES = 32
_MAGIC = b"PNSK"
_VERSION = 1
_OPENING = struct.Struct(f"<4sB{NONCE_BYTES}s")
_PROOF = struct.Struct("<32sH")
_VERDICT = struct.Struct("<BH")
_IDENTITY_BYTES_MAX = 1024

WELCOME, LATER, REFUSED = range(3)


class HandshakeError(Exception):
    """Signals that the other end is not one of ours, or refuses us."""


class NotYet(HandshakeError):
    """Signals that the other end is one of ours, but has not reached our generation: dial again."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Identifies the sender. `process` is a random id of the process; the driver has slot -1 and no generation."""

    job_id: str
    slot: int
    process: str
    generation: Generation | None = None


class _Handshake:
    """Takes bytes (`feed`) and returns bytes. It is finished when `peer` is set; `rest` is what came after it."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._received = bytearray()
        self.peer: Identity | None = None

    @property
    def rest(self) -> bytes:
        return bytes(self._received)

    def _take(self, size: int) -> bytes | None:
        if len(self._received) < size:
            return None
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _take_opening(self) -> bytes | None:
        """Return the other end's nonce, or None if it is not complete; refuse garbage with its first bytes."""
        start = bytes(self._received[: len(_MAGIC)])
        if start != _MAGIC[: len(start)]:
            raise HandshakeError(f"it does not speak our protocol (it began with {start!r})")
        if len(self._received) > 4 and self._received[4] != _VERSION:
            raise HandshakeError(f"it speaks version {self._received[4]} of the protocol, this process {_VERSION}")
        opening = self._take(_OPENING.size)
        return None if opening is None else _OPENING.unpack(opening)[2]

    def _prove(self, role: bytes, dialler: bytes, listener: bytes, identity: Identity) -> bytes:
        encoded = msgspec.msgpack.encode(identity)
        return _PROOF.pack(self._digest(role, dialler, listener, encoded), len(encoded)) + encoded

    def _take_proven(self, role: bytes, dialler: bytes, listener: bytes) -> Identity | None:
        if len(self._received) < _PROOF.size:
            return None
        digest, size = _PROOF.unpack_from(self._received)
        if size > _IDENTITY_BYTES_MAX:
            raise HandshakeError("it does not speak our protocol (an identity of impossible length)")
        data = self._take(_PROOF.size + size)
        if data is None:
            return None
        encoded = data[_PROOF.size :]
        if not hmac.compare_digest(digest, self._digest(role, dialler, listener, encoded)):
            raise HandshakeError("it does not know this job's secret")
        return msgspec.msgpack.decode(encoded, type=Identity)

    def _digest(self, role: bytes, dialler: bytes, listener: bytes, identity: bytes) -> bytes:
        return hmac.digest(self._secret, role + dialler + listener + identity, "sha256")


class DiallerHandshake(_Handshake):
    def __init__(self, secret: bytes, nonce: bytes, identity: Identity) -> None:
        super().__init__(secret, nonce)
        self._identity = identity
        self._listener_nonce: bytes | None = None
        self._listener: Identity | None = None

    def start(self) -> bytes:
        return _OPENING.pack(_MAGIC, _VERSION, self._nonce)

    def feed(self, data: bytes | memoryview) -> bytes:
        """Return the bytes to send. Raises `NotYet` or `HandshakeError`: close the connection in both cases."""
        self._received += data
        if self._listener_nonce is None:
            self._listener_nonce = self._take_opening()
            if self._listener_nonce is None:
                return b""
        if self._listener is None:
            self._listener = self._take_proven(b"listener", self._nonce, self._listener_nonce)
            if self._listener is None:
                return b""
            if self._listener.job_id != self._identity.job_id:
                raise HandshakeError(f"it belongs to job {self._listener.job_id}, not to {self._identity.job_id}")
            return self._prove(b"dialler", self._nonce, self._listener_nonce, self._identity) + self._verdict()
        self._verdict()
        return b""

    def _verdict(self) -> bytes:
        if len(self._received) < _VERDICT.size:
            return b""
        verdict, size = _VERDICT.unpack_from(self._received)
        data = self._take(_VERDICT.size + size)
        if data is None:
            return b""
        detail = data[_VERDICT.size :].decode(errors="replace")
        if verdict == LATER:
            raise NotYet(detail)
        if verdict != WELCOME:
            raise HandshakeError(f"it refused: {detail}")
        self.peer = self._listener
        return b""


class ListenerHandshake(_Handshake):
    """Implements the listener's side. `decide(identity)` -> (verdict, detail) is called once the dialler has proved the
    secret.
    """

    def __init__(
        self, secret: bytes, nonce: bytes, identity: Identity, decide: Callable[[Identity], tuple[int, str]]
    ) -> None:
        super().__init__(secret, nonce)
        self._identity = identity
        self._decide = decide
        self._dialler_nonce: bytes | None = None
        self.verdict: int | None = None

    def feed(self, data: bytes | memoryview) -> bytes:
        """Return the bytes to send. Raises `HandshakeError`: close without an answer. With a verdict other than WELCOME
        `peer` stays None: send, then close.
        """
        self._received += data
        if self._dialler_nonce is None:
            self._dialler_nonce = self._take_opening()
            if self._dialler_nonce is None:
                return b""
            opening = _OPENING.pack(_MAGIC, _VERSION, self._nonce)
            return opening + self._prove(b"listener", self._dialler_nonce, self._nonce, self._identity)
        if self.verdict is not None:
            return b""
        dialler = self._take_proven(b"dialler", self._dialler_nonce, self._nonce)
        if dialler is None:
            return b""
        if dialler.job_id != self._identity.job_id:
            self.verdict, detail = REFUSED, f"this is job {self._identity.job_id}, not {dialler.job_id}"
        else:
            self.verdict, detail = self._decide(dialler)
        if self.verdict == WELCOME:
            self.peer = dialler
        encoded = detail.encode()[:1000]
        return _VERDICT.pack(self.verdict, len(encoded)) + encoded
