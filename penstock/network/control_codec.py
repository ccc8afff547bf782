"""Encodes `penstock.protocol.values.messages` as bytes: a length, then tagged msgpack."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

import msgspec

from penstock.protocol.values.messages import Downward, Message, Upward

MESSAGE_BYTES_MAX = 1 << 30
_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class MessageError(Exception):
    """Signals that the other end does not send our messages: close the connection."""


class MessageDecoder:
    """Decodes messages. `expected`: `Upward` at the driver, `Downward` at a slot."""

    def __init__(self, expected: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(expected)
        self._received = bytearray()

    def feed(self, received: memoryview) -> list[Message]:
        """Return the complete messages. Raises `MessageError` for anything that is not one of the expected messages."""
        self._received += received
        messages, at = [], 0
        with memoryview(self._received) as view:
            while len(view) - at >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(view, at)
                if size > MESSAGE_BYTES_MAX:
                    raise MessageError(f"a message of {size} bytes; the limit is {MESSAGE_BYTES_MAX} bytes")
                if len(view) - at - _LENGTH.size < size:
                    break
                at += _LENGTH.size
                try:
                    messages.append(self._decoder.decode(view[at : at + size]))
                except msgspec.DecodeError as error:
                    raise MessageError(f"a message that cannot be read: {error}") from error
                at += size
        del self._received[:at]
        return messages


def upward_decoder() -> MessageDecoder:
    return MessageDecoder(Upward)


def downward_decoder() -> MessageDecoder:
    return MessageDecoder(Downward)


class MessageOutbox:
    """Queues messages in the order in which they were put; the same interface as
    `penstock.network.connection.Outbox`.
    """

    def __init__(self) -> None:
        self._queued: deque[memoryview] = deque()
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queued)

    def put(self, message: Message) -> None:
        data = _encoder.encode(message)
        if len(data) > MESSAGE_BYTES_MAX:
            raise MessageError(f"{type(message).__name__} of {len(data)} bytes; the limit is {MESSAGE_BYTES_MAX} bytes")
        self.put_bytes(_LENGTH.pack(len(data)) + data)

    def put_bytes(self, data: bytes) -> None:
        self._queued.append(memoryview(data))
        self.queued_bytes += len(data)

    def gather(self) -> list[memoryview]:
        return [self._queued[i] for i in range(min(len(self._queued), 64))]

    def advance(self, sent_bytes: int) -> None:
        self.queued_bytes -= sent_bytes
        while sent_bytes:
            first = self._queued.popleft()
            if sent_bytes < len(first):
                self._queued.appendleft(first[sent_bytes:])
                return
            sent_bytes -= len(first)
