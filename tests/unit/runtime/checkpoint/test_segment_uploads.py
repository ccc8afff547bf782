"""Tests what becomes of uploads that are not stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.runtime.checkpoint.segment_uploads import SegmentUploads, Upload
from penstock.runtime.process.mailbox import Mailbox
from penstock.storage.memory import MemoryStore
from penstock.storage.segments import SegmentWriter


def upload(discarded: list[str], name: str) -> Upload:
    state = SimpleNamespace(discard=lambda: discarded.append(name))
    captures: list[Any] = [SimpleNamespace(checkpoint_id=1, state=state), SimpleNamespace(checkpoint_id=1, state=None)]
    return Upload(captures[0], captures, SegmentWriter(MemoryStore(), lambda: name), [], [])


def test_states_learn_of_an_upload_that_is_dropped_before_it_begins() -> None:
    """Without this: what a checkpoint was the first to name is named by no other, and stays for ever."""
    discarded: list[str] = []
    uploads = SegmentUploads(1, lambda work: None)
    for name in ("running", "waiting"):
        uploads.submit(upload(discarded, name), Mailbox())
    uploads.drop_waiting()
    assert discarded == ["waiting"]
