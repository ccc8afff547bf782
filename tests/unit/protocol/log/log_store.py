"""Provides a store for the log's conversations that loses replies, applies late, and lets several drivers take
turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.log.log_operations import (
    AppendEntry,
    Conversation,
    CreateMetadata,
    Damaged,
    Done,
    Exists,
    ListLog,
    ListMetadata,
    Missing,
    Operation,
    ReadEntry,
    ReadMetadata,
    Refused,
    Unknown,
    Wait,
)
from penstock.protocol.log.publication import NewCheckpoint, Publication
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import FORMAT_VERSION, Metadata, Segment


def metadata(
    checkpoint_id: int, incarnation: str = "a", segments: tuple[str, ...] = (), *, is_final: bool = False
) -> Metadata:
    return Metadata(
        FORMAT_VERSION,
        "job",
        "name",
        checkpoint_id,
        0,
        1,
        incarnation,
        0,
        False,
        [],
        [],
        [Segment(path, 1) for path in segments],
        [],
        [],
        [],
        is_final,
    )


def path_of(checkpoint_id: int) -> str:
    return f"chk-{checkpoint_id}/_metadata"


Fault = str
"""'': works; 'lost': applied, no reply; 'refused': not applied, no reply; 'late': applied at `apply_late`, no reply;
'full': an entry is certainly not applied."""


Entry = Fence | CheckpointEntry | Ended


@dataclass
class LogStore:
    entries: dict[int, Entry] = field(default_factory=dict)
    history: dict[int, Entry] = field(default_factory=dict)
    """What was first at each position, whether it was deleted since or not."""
    metadata: dict[str, Metadata] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    by_data: dict[bytes, Metadata] = field(default_factory=dict)
    ignores_conditions: bool = False
    deleted: list[str] = field(default_factory=list)
    late: list[Callable[[], Any]] = field(default_factory=list)

    def answer(self, operation: Operation, fault: Fault = "") -> Any:
        if isinstance(operation, Wait):
            return None
        if fault == "full" and isinstance(operation, AppendEntry):
            return Refused("the disk is full")
        if fault == "refused":
            return Unknown("time-out")
        if fault == "late":
            self.late.append(lambda: self._execute(operation))
            return Unknown("time-out")
        answer = self._execute(operation)
        return Unknown("time-out") if fault == "lost" else answer

    def apply_late(self) -> None:
        for operation in self.late:
            operation()
        self.late.clear()

    def _execute(self, operation: Operation) -> Any:
        if isinstance(operation, ListLog):
            return sorted(self.entries)
        if isinstance(operation, ListMetadata):
            return sorted(m.checkpoint_id for m in self.metadata.values())
        if isinstance(operation, ReadEntry):
            return self.entries.get(operation.sequence, Missing())
        if isinstance(operation, AppendEntry):
            if operation.entry.sequence in self.entries and not self.ignores_conditions:
                return Exists()
            assert isinstance(operation.entry, Entry)
            self.entries[operation.entry.sequence] = operation.entry
            self.history.setdefault(operation.entry.sequence, operation.entry)
            return Done()
        if isinstance(operation, CreateMetadata):
            if operation.path in self.metadata:
                return Exists()
            self.metadata[operation.path] = self.by_data[operation.data]
            return Done()
        assert isinstance(operation, ReadMetadata)
        if operation.path in self.damaged:
            return Damaged(self.damaged[operation.path])
        return self.metadata.get(operation.path, Missing())

    def shorten(self, positions: tuple[int, ...]) -> None:
        for position in positions:
            self.entries.pop(position, None)

    def delete(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            self.deleted.append(path)
            self.metadata.pop(path, None)


@dataclass
class Conversing:
    """A conversation in progress: one `step` is one operation."""

    conversation: Conversation[Any]
    operation: Operation | None = None
    result: Any = None
    error: Exception | None = None
    is_done: bool = False

    def __post_init__(self) -> None:
        self.advance(None)

    def advance(self, answer: Any) -> None:
        try:
            self.operation = self.conversation.send(answer)
        except StopIteration as stop:
            self.result, self.is_done = stop.value, True
        except Exception as error:
            self.error, self.is_done = error, True

    def step(self, store: LogStore, fault: Fault = "") -> None:
        assert self.operation is not None
        self.advance(store.answer(self.operation, fault))


def run(conversation: Conversation[Any], store: LogStore, *faults: Fault) -> Any:
    """Run a conversation to its end; the first operations that are no waits meet the given faults."""
    left = list(faults)
    conversing = Conversing(conversation)
    while not conversing.is_done:
        is_wait = isinstance(conversing.operation, Wait)
        conversing.step(store, left.pop(0) if left and not is_wait else "")
    if conversing.error is not None:
        raise conversing.error
    return conversing.result


def new(
    store: LogStore, checkpoint_id: int, incarnation: str = "a", *segments: str, is_final: bool = False
) -> NewCheckpoint:
    content = metadata(checkpoint_id, incarnation, segments, is_final=is_final)
    data = f"{checkpoint_id}-{incarnation}".encode()
    store.by_data[data] = content
    return NewCheckpoint(content, path_of(checkpoint_id), data, 7)


def owner(store: LogStore, incarnation: str = "a", *, resume: bool = False, retained_max: int = 1) -> Publication:
    publication = Publication(incarnation, retained_max, host="host", pid=11)
    run(publication.take_over(resume=resume), store)
    return publication


def checkpoints(store: LogStore) -> list[tuple[str, int]]:
    """Return driver and id of each checkpoint in the log, in its order."""
    return [
        (e.incarnation, e.checkpoint_id) for _, e in sorted(store.entries.items()) if isinstance(e, CheckpointEntry)
    ]
