"""Executes conversations with the job's log, one after the other, a store operation at a time and never on the
JobMaster's loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.common.clock import Clock
from penstock.jobmaster.master_ports import BlockingWork
from penstock.protocol.log.log_operations import (
    AppendEntry,
    Conversation,
    CreateMetadata,
    Damaged,
    Done,
    Exists,
    Gone,
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
from penstock.protocol.log.publication import PublicationError
from penstock.storage.layout import LOG_FOLDER, LogName, log_path, parse
from penstock.storage.log import encode_entry, read_entry
from penstock.storage.metadata_file import list_metadata, read_metadata
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import ObjectExists, ObjectMissing, ObjectStore, StoreError, StoreRefused, StoreRemoved


def execute(store: ObjectStore, operation: Operation) -> Any:
    """Return the answer that `penstock.protocol.log.log_operations` lists for the operation. Blocks."""
    try:
        return _execute(store, operation)
    except ObjectExists:
        return Exists()
    except ObjectMissing:
        return Missing()
    except (DamagedObject, NewerFormat) as error:
        return Damaged(str(error))
    except StoreRemoved as error:
        return Gone(str(error))
    except StoreRefused as error:
        return Refused(str(error)) if isinstance(operation, AppendEntry) else Unknown(str(error))
    except StoreError as error:
        return Unknown(str(error))


def _execute(store: ObjectStore, operation: Operation) -> Any:
    match operation:
        case ListLog():
            return [name.sequence for path in store.list(LOG_FOLDER) if isinstance(name := parse(path), LogName)]
        case ListMetadata():
            return [name.checkpoint_id for name in list_metadata(store)]
        case ReadEntry(sequence):
            return read_entry(store, sequence)
        case AppendEntry(entry):
            store.create(log_path(entry.sequence), encode_entry(entry))
            return Done()
        case CreateMetadata(path, data):
            store.create(path, data)
            return Done()
        case ReadMetadata(path, crc):
            return read_metadata(store, path, crc)
        case Wait():
            return None


class LogConversations:
    """Holds the conversations with the log that wait, and has one of them at a time."""

    def __init__(self, store: ObjectStore, work: BlockingWork, clock: Clock) -> None:
        self._store = store
        self._work = work
        self._clock = clock
        self._waiting: deque[tuple[Conversation[Any], Callable[[Any], None]]] = deque()
        self._current: tuple[Conversation[Any], Callable[[Any], None]] | None = None
        self._resume_at_ms: float | None = None
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether none runs, and none waits. Without the second half: what the end of one brings about takes the
        job for one without publications, and restarts it below the next."""
        return self._current is None and not self._waiting

    def begin(self, conversation: Conversation[Any], done: Callable[[Any], None]) -> None:
        """Begin a conversation. `done` gets its result, or the exception that ended it."""
        self._waiting.append((conversation, done))
        self._start_next()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` at once if there is no conversation, else when the last one has ended."""
        if self.is_idle:
            action()
        else:
            self._when_idle.append(action)

    def next_deadline_ms(self) -> float | None:
        return self._resume_at_ms

    def on_time(self, now_ms: float) -> None:
        if self._resume_at_ms is not None and self._resume_at_ms <= now_ms:
            self._resume_at_ms = None
            self._advance(None)

    def _start_next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._advance(None)

    def _advance(self, answer: Any) -> None:
        assert self._current is not None
        conversation, _ = self._current
        if isinstance(answer, Exception):
            answer = Unknown(f"{type(answer).__name__}: {answer}")
        try:
            operation = conversation.send(answer)
        except StopIteration as stop:
            self._finish(stop.value)
            return
        except PublicationError as error:
            self._finish(error)
            return
        if isinstance(operation, Wait):
            self._resume_at_ms = self._clock.monotonic_ms() + operation.delay_ms
            return
        store = self._store
        self._work.submit(f"log: {type(operation).__name__}", lambda: execute(store, operation), self._advance)

    def _finish(self, result: Any) -> None:
        assert self._current is not None
        _, done = self._current
        self._current = None
        done(result)
        self._start_next()
        if self._current is None:
            actions, self._when_idle = self._when_idle, []
            for action in actions:
                action()
