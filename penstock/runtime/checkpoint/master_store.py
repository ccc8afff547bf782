"""Reaches checkpoint storage in the driver's memory from a slot: requests on the connection to the JobMaster."""

from __future__ import annotations

import builtins
import itertools
import threading
from typing import Sequence

from penstock.protocol.values.messages import StoreReply, StoreRequest
from penstock.runtime.process.slot_ports import MasterLink
from penstock.storage.store import TEMPORARY_GRACE_S, CollectingWriter, ObjectWriter, StoreError, delete_each

_REPLY_TIMEOUT_S = 30.0


class MasterStore:
    """Implements the part of `ObjectStore` that a slot uses. `put` and `get` block the thread that calls them, which is
    never that of the connections.
    """

    def __init__(self, slot: int, master: MasterLink) -> None:
        self._slot = slot
        self._master = master
        self._numbers = itertools.count()
        self._replies: dict[int, StoreReply | None] = {}
        """The reply to each request that somebody waits for; None: it has not come."""
        self._changed = threading.Condition()

    def on_reply(self, reply: StoreReply) -> None:
        with self._changed:
            if reply.request in self._replies:
                self._replies[reply.request] = reply
                self._changed.notify_all()

    def _ask(self, request: StoreRequest) -> StoreReply:
        with self._changed:
            self._replies[request.request] = None
        self._master.send(request)
        with self._changed:
            self._changed.wait_for(lambda: self._replies[request.request] is not None, _REPLY_TIMEOUT_S)
            reply = self._replies.pop(request.request)
        if reply is None:
            raise StoreError(f"{request.path}: no answer from the driver's memory after {_REPLY_TIMEOUT_S:.0f} s")
        if reply.error is not None:
            raise StoreError(reply.error)
        return reply

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        self._ask(StoreRequest(self._slot, next(self._numbers), path, b"".join(parts)))

    def writer(self, path: str) -> ObjectWriter:
        return CollectingWriter(path, self.put)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        length = -1 if length_bytes is None else length_bytes
        reply = self._ask(StoreRequest(self._slot, next(self._numbers), path, None, offset, length))
        assert reply.data is not None
        return reply.data

    def create(self, path: str, data: bytes) -> None:
        raise StoreError(f"{path}: only the driver creates objects in its memory")

    def size(self, path: str) -> int:
        return len(self.get(path))

    def list(self, prefix: str) -> list[str]:
        raise StoreError("only the driver lists objects in its memory")

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        raise StoreError("only the driver lists objects in its memory")

    def delete(self, path: str) -> None:
        raise StoreError(f"{path}: only the driver deletes objects in its memory")

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths)

    def remove_if_empty(self) -> None:
        """Do nothing: memory has no directory."""

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Do nothing: an object in memory is there whole or not at all."""
