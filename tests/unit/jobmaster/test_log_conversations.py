"""Tests conversations with the job's log: one after the other, and what waits for the last of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.jobmaster.job_directory import LogConversations
from penstock.protocol.log.log_operations import Conversation, ListLog
from penstock.storage.memory import MemoryStore
from tests.unit.jobmaster.manual_ports import ManualClock


class DeferredWork:
    """Implements `penstock.jobmaster.ports.BlockingWork`: what is submitted runs when the test says so."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.submitted.append((work, done))

    def run_one(self) -> None:
        work, done = self.submitted.pop(0)
        done(work())


def test_what_the_end_of_one_brings_about_waits_for_those_that_are_queued() -> None:
    work, told = DeferredWork(), []
    conversations = LogConversations(MemoryStore(1 << 20), work, ManualClock())

    def conversation(name: str) -> Conversation[None]:
        yield ListLog()
        told.append(name)

    def first_has_failed(result: Any) -> None:
        conversations.when_idle(lambda: told.append("idle"))

    conversations.begin(conversation("first"), first_has_failed)
    conversations.begin(conversation("second"), lambda result: None)
    while work.submitted:
        work.run_one()
    assert told == ["first", "second", "idle"]
