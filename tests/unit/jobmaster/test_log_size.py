"""Tests what a job's directory holds after very many checkpoints, and what a takeover lists.

`PENSTOCK_LOG_CHECKPOINTS=100000` runs as many as the limits were set for; the suite runs fewer.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any

from penstock.jobmaster.job_directory import _look_around, execute
from penstock.protocol.log.log_operations import Conversation
from penstock.protocol.log.publication import NewCheckpoint, Publication, Published
from penstock.protocol.log.retention import Sweep
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import FORMAT_VERSION, Metadata, Segment
from penstock.storage.layout import log_path, metadata_path, segment_path
from penstock.storage.log import read_log
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata_file import encode_metadata, metadata_crc

CHECKPOINTS = int(os.environ.get("PENSTOCK_LOG_CHECKPOINTS", "2000"))
SLOTS = 4
OBJECTS_MAX = 50


class CountingStore(MemoryStore):
    """Counts the objects that its lists show."""

    listed = 0

    def list(self, prefix: str) -> list[str]:
        found = super().list(prefix)
        self.listed += len(found)
        return found

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        start = f"{prefix}/" if prefix else ""
        below = (path.removeprefix(start).partition("/") for path in super().list(prefix))
        found = sorted({name for name, slash, _ in below if slash})
        self.listed += len(found)
        return found


def drive(store: MemoryStore, conversation: Conversation[Any]) -> Any:
    answer: Any = None
    while True:
        try:
            answer = execute(store, conversation.send(answer))
        except StopIteration as stop:
            return stop.value


def delete(store: MemoryStore, paths: Sequence[str], positions: Sequence[int]) -> None:
    for path in (*paths, *map(log_path, positions)):
        store.delete(path)


def checkpoint(store: MemoryStore, incarnation: str, fence: int, checkpoint_id: int) -> NewCheckpoint:
    segments = []
    for slot in range(SLOTS):
        path = segment_path(Generation(fence, 1), incarnation, slot, checkpoint_id, "r")
        store.put(path, [b"segment"])
        segments.append(Segment(path, 7))
    metadata = Metadata(
        FORMAT_VERSION,
        "0" * 32,
        "job",
        checkpoint_id,
        fence,
        1,
        incarnation,
        0,
        False,
        [],
        [],
        segments,
        [],
        [],
        [],
        False,
    )
    data = encode_metadata(metadata)
    return NewCheckpoint(metadata, metadata_path(checkpoint_id), data, metadata_crc(data))


def test_neither_the_directory_nor_a_takeover_grows_with_the_number_of_checkpoints() -> None:
    store = CountingStore()
    objects_max, checkpoint_id, listed_max, results = 0, 0, 0, 0
    for driver in range(4):
        publication = Publication(f"d{driver}", 1)
        store.listed = 0
        taken = drive(store, publication.take_over(resume=driver > 0))
        found = _look_around(store, Sweep(Generation(taken.fence, 1), publication.newest_id), 0.0)
        assert len(found) <= objects_max + 1
        listed_max = max(listed_max, store.listed)
        assert (taken.newest.checkpoint_id if taken.newest else 0) == checkpoint_id
        for checkpoint_id in range(taken.next_checkpoint_id, taken.next_checkpoint_id + CHECKPOINTS // 4):
            published = drive(store, publication.publish(checkpoint(store, f"d{driver}", taken.fence, checkpoint_id)))
            assert isinstance(published, Published)
            delete(store, published.deletable, published.shortened)
            objects_max = max(objects_max, len(store._objects) - results)
            store.put(f"results/sink/part-{checkpoint_id}", [b"rows"])
            results += 1
    print(f"{checkpoint_id} checkpoints: at most {objects_max} objects, {listed_max} listed by a takeover")
    assert checkpoint_id == CHECKPOINTS
    assert objects_max <= OBJECTS_MAX and listed_max <= OBJECTS_MAX
    assert [entry.sequence for entry in read_log(store)][-1] == CHECKPOINTS + 3
    assert store.used_bytes < 20_000 + results * len(b"rows")
