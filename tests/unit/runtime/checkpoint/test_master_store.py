"""Tests what a slot asks the driver's memory for."""

from __future__ import annotations

from typing import Callable

import pytest

from penstock.protocol.values.messages import Message, StoreReply, StoreRequest
from penstock.runtime.checkpoint import master_store
from penstock.runtime.checkpoint.master_store import MasterStore
from penstock.storage.store import StoreError


class Driver:
    """`answer` is given each request as it is sent."""

    def __init__(self, answer: Callable[[StoreRequest], None]) -> None:
        self._answer = answer

    def send(self, message: Message) -> None:
        assert isinstance(message, StoreRequest)
        self._answer(message)


def test_a_request_gets_its_own_answer_however_soon_it_comes() -> None:
    def answer(request: StoreRequest) -> None:
        store.on_reply(StoreReply(request.request + 1, b"another's"))
        store.on_reply(StoreReply(request.request, request.path.encode()))

    store = MasterStore(0, Driver(answer))
    assert [store.get(path) for path in ("a", "b")] == [b"a", b"b"]


def test_an_answer_that_comes_too_late_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_store, "_REPLY_TIMEOUT_S", 0.01)
    asked: list[StoreRequest] = []
    store = MasterStore(0, Driver(asked.append))
    with pytest.raises(StoreError, match="shared/x: no answer from the driver's memory"):
        store.get("shared/x")
    store.on_reply(StoreReply(asked[0].request, b"large"))
    assert not store._replies
