"""Writes the captures of a slot's subtasks: one segment per checkpoint, then one acknowledgement for all of them.

It is an actor with a mailbox of its own. Keyed state is encoded as soon as the snapshot is taken, because the stream
pays for it until then, and what is large is written as it is encoded, one range in a step; what was in flight follows
when the last subtask's windows have closed. Then the segment is stored: by the writer itself, or, if several
checkpoints may be in progress, next to it (`segment_uploads.py`). While no checkpoint wants it, it stores large states
whole (`consolidations.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Callable, NamedTuple

import msgspec

from penstock.common.clock import Clock
from penstock.protocol.subtask.ended_checkpoints import EndedCheckpoints
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import CheckpointEnded, Decline, Message, SlotAck
from penstock.protocol.values.metadata import (
    Segment,
    StateRange,
    SubtaskSnapshot,
)
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint.capture import Capture
from penstock.runtime.checkpoint.consolidations import Consolidated, Consolidations
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads, Stored, Upload
from penstock.runtime.checkpoint.stored_ranges import stored_states, worth_keeping
from penstock.runtime.checkpoint.subtask_snapshots import snapshot_of
from penstock.runtime.process.mailbox import Mailbox
from penstock.state.backend import EncodedState, StoredState
from penstock.storage.local_backup import LocalBackup
from penstock.storage.segments import SegmentWriter
from penstock.storage.store import ObjectStore, StoreError

_RESTED_FOR_BYTES_MAX = 4 * 1024 * 1024
"""More is not written within the time for which the slot's subtasks leave us the interpreter."""


class Taken(msgspec.Struct, frozen=True):
    """Reports that a snapshot was taken: its state can be encoded while its windows are still open."""

    capture: Capture


class Closed(msgspec.Struct, frozen=True):
    """Reports that all windows of a snapshot are closed: it can be written."""

    capture: Capture


class SavepointTarget(msgspec.Struct, frozen=True):
    """Holds the destination of a savepoint's segments. It comes from the JobMaster, so the snapshots may come before
    it."""

    checkpoint_id: int
    directory: str


@dataclass
class _SlotCheckpoint:
    """Collects the captures of a slot's subtasks for one checkpoint, until all are there."""

    segment: SegmentWriter
    earlier: list[Segment] = field(default_factory=list)
    """Segments of other checkpoints that this one names."""
    taken: dict[SubtaskId, Capture] = field(default_factory=dict)
    closed: dict[SubtaskId, tuple[Capture, SubtaskSnapshot]] = field(default_factory=dict)
    expected_bytes: int = 0

    def add(self, state: EncodedState | StoredState) -> StateRange:
        """Add a run of entries: write it to the segment, or name the earlier segment that contains it. Raises
        `StoreError`."""
        if isinstance(state, EncodedState):
            segment = 0
            offset, length_bytes, crc = self.segment.add(state.parts, borrowed=True)
        else:
            if state.segment not in self.earlier:
                self.earlier.append(state.segment)
            segment = self.earlier.index(state.segment) + 1
            offset, length_bytes, crc = state.offset, state.length_bytes, state.crc
        name = (state.operator, state.name)
        return StateRange(*name, segment, offset, length_bytes, crc, state.entries, state.bounds)


class _Encoding(NamedTuple):
    """Holds keyed state of one subtask, some ranges of which are written."""

    capture: Capture
    checkpoint: _SlotCheckpoint
    ranges: Iterator[EncodedState | StoredState]


class SnapshotWriter:
    """Writes the segments of one generation in a slot. `subtasks`: the number of the slot's subtasks that take part.
    `new_segment_path(checkpoint id)` is unique. `open_savepoint(checkpoint id, directory)` returns the store of a
    savepoint and a unique path in it. `unpark(checkpoint id)` is called when no subtask has to pause for the checkpoint
    any more: it is written, has ended, or is too large. `uploads` None: each segment is stored before the next one.
    `codec`: the compression of ranges, which the names of segments contain, too. `backup`: where `store` keeps copies.
    `consolidations` None: none are stored.
    """

    def __init__(
        self,
        generation: Generation,
        slot: int,
        subtasks: int,
        store: ObjectStore | None,
        new_segment_path: Callable[[int], str],
        open_savepoint: Callable[[int, str], tuple[ObjectStore, str]],
        send: Callable[[Message], None],
        unpark: Callable[[int], None],
        clock: Clock,
        uploads: SegmentUploads | None = None,
        codec: str = "none",
        backup: LocalBackup | None = None,
        consolidations: Consolidations | None = None,
        collected_bytes_max: int | None = None,
    ) -> None:
        self._collected_bytes_max = collected_bytes_max
        self.generation = generation
        self._slot = slot
        self._subtasks = subtasks
        self._store = store
        self._backup = backup
        self._codec = codec
        self._new_segment_path = new_segment_path
        self._open_savepoint = open_savepoint
        self._targets: dict[int, str] = {}
        self._untargeted: dict[int, list[Taken | Closed]] = {}
        self._replayed: deque[Taken | Closed] = deque()
        self._send = send
        self._unpark = unpark
        self._clock = clock
        self._checkpoints: dict[int, _SlotCheckpoint] = {}
        self._ends: deque[int] = deque()
        self._ended = EndedCheckpoints()
        self._encoding: _Encoding | None = None
        self._uploads = SegmentUploads(1) if uploads is None else uploads
        self._consolidations = consolidations or Consolidations(None, new_segment_path, clock)
        self.mailbox = Mailbox()

    def on_ended(self, checkpoint_id: int) -> None:
        """Drop the captures of a checkpoint that is over, ahead of all mail. Any thread may call it. Without this: a
        writer that is behind writes what nobody wants any more, and is never in time for what comes next.
        """
        self._ends.append(checkpoint_id)
        self.mailbox.wake()

    def step(self) -> bool:
        """Write the next range of the state that is being encoded, or handle one item of mail, or write the next range
        of a consolidation. Return False if there was nothing to do.
        """
        # 2.8b: what has ended is dropped before anything else is written.
        while self._ends:
            self._drop(self._ends.popleft())
        if self._encoding is not None:
            self._encode_next(self._encoding)
            return True
        if not (self._replayed or self.mailbox):
            return self._consolidations.write_next(self.mailbox)
        item = self._replayed.popleft() if self._replayed else self.mailbox.take()
        match item:
            case Taken(capture) | Closed(capture) if self._waits_for_target(capture):
                self._untargeted.setdefault(capture.checkpoint_id, []).append(item)
            case Taken(capture):
                self._take(capture)
            case Closed(capture):
                self._close(capture)
            case SavepointTarget():
                self._on_target(item)
            case Stored(upload):
                self._uploads.on_stored(upload)
                self._acknowledge(upload)
            case Consolidated(writing):
                self._consolidations.on_consolidated(writing)
            case CheckpointEnded(_, checkpoint_id, aborted) if self._backup is not None:
                self._backup.on_ended(checkpoint_id, aborted)
        return True

    @property
    def wait_ms(self) -> float | None:
        """Return the time from an idle step to the next one, in ms; None: when there is mail."""
        return self._consolidations.wait_ms

    @property
    def is_storing(self) -> bool:
        """Return whether a segment is still being stored, which nothing interrupts."""
        return self._uploads.are_running or self._consolidations.is_storing

    def close(self) -> None:
        """End the generation: discard everything that is being written. Call it again while `is_storing`."""
        for checkpoint_id in [*self._checkpoints, *self._untargeted]:
            self._drop(checkpoint_id)
        self._uploads.drop_waiting()
        self._consolidations.close()
        while self.mailbox:
            item = self.mailbox.take()
            if isinstance(item, Stored):
                self._uploads.on_stored(item.upload)
            elif isinstance(item, Consolidated):
                self._consolidations.on_consolidated(item.writing)

    def _waits_for_target(self, capture: Capture) -> bool:
        checkpoint_id = capture.checkpoint_id
        is_known = checkpoint_id in self._targets or checkpoint_id in self._ended
        return capture.cut.barrier.kind.is_savepoint and not is_known

    def _on_target(self, target: SavepointTarget) -> None:
        if target.checkpoint_id in self._ended:
            return
        self._targets[target.checkpoint_id] = target.directory
        # Handled before newer mail: the end of a checkpoint must not come before its snapshots.
        self._replayed.extend(self._untargeted.pop(target.checkpoint_id, []))

    def _segment(self, checkpoint_id: int) -> SegmentWriter:
        directory = self._targets.get(checkpoint_id)
        if directory is None:
            return SegmentWriter(
                self._store, lambda: self._new_segment_path(checkpoint_id), self._collected_bytes_max, self._codec
            )
        store, path = self._open_savepoint(checkpoint_id, directory)
        return SegmentWriter(store, lambda: path, self._collected_bytes_max, self._codec)

    def _take(self, capture: Capture) -> None:
        checkpoint_id = capture.checkpoint_id
        if checkpoint_id in self._ended:
            self._refuse(capture)
            return
        checkpoint = self._checkpoints.get(checkpoint_id)
        if checkpoint is None:
            try:
                segment = self._segment(checkpoint_id)
            except StoreError as error:
                self._refuse(capture)
                self._decline(capture, FailureReason.IO_EXCEPTION, str(error))
                return
            checkpoint = self._checkpoints[checkpoint_id] = _SlotCheckpoint(segment)
        checkpoint.taken[capture.subtask] = capture
        if capture.state is not None:
            checkpoint.expected_bytes += capture.state.expected_bytes
        if checkpoint.expected_bytes > _RESTED_FOR_BYTES_MAX:
            self._unpark(checkpoint_id)
        if capture.state is not None:
            self._consolidations.add(capture.state.consolidations)
            self._encoding = _Encoding(capture, checkpoint, capture.state.encode())

    def _encode_next(self, encoding: _Encoding) -> None:
        """Write one range, so that the end of a generation waits for no more than that."""
        capture = encoding.capture
        try:
            encoded = next(encoding.ranges, None)
            if encoded is None:
                self._encoding = None
                return
            capture.keyed.append(encoding.checkpoint.add(encoded))
        except StoreError as error:
            self._decline(capture, FailureReason.IO_EXCEPTION, str(error))
        except Exception as error:  # catches whatever a user's object raises when it is pickled
            self._decline(capture, FailureReason.ASYNC_EXCEPTION, f"keyed state cannot be written: {error}")

    def _close(self, capture: Capture) -> None:
        checkpoint = self._checkpoints.get(capture.checkpoint_id)
        if checkpoint is None:
            return
        # Written now, not when all subtasks have closed theirs: barriers of the others may still be on their way.
        try:
            snapshot = snapshot_of(capture, checkpoint.segment, self._clock)
        except StoreError as error:
            self._decline(capture, FailureReason.IO_EXCEPTION, str(error))
            return
        checkpoint.closed[capture.subtask] = capture, snapshot
        if len(checkpoint.closed) < self._subtasks:
            return
        del self._checkpoints[capture.checkpoint_id]
        closed = [checkpoint.closed[subtask] for subtask in sorted(checkpoint.closed)]
        captures, snapshots = [capture for capture, _ in closed], [snapshot for _, snapshot in closed]
        upload = Upload(capture, captures, checkpoint.segment, checkpoint.earlier, snapshots)
        if self._uploads.are_apart:
            self._unpark(capture.checkpoint_id)
            self._uploads.submit(upload, self.mailbox)
        else:
            upload.store()
            self._acknowledge(upload)

    def _acknowledge(self, upload: Upload) -> None:
        """Acknowledge a checkpoint whose segment is stored. One that has ended meanwhile is acknowledged, too: the
        coordinator deletes segments that come late."""
        checkpoint_id = upload.capture.checkpoint_id
        if upload.error is not None:
            if not isinstance(upload.error, StoreError):
                raise upload.error
            upload.discard()
            if checkpoint_id not in self._ended:
                self._decline(upload.capture, FailureReason.IO_EXCEPTION, str(upload.error))
            return
        # 2.4: the segment is durable from here on.
        self._remember(checkpoint_id)
        _notify_backends(upload)
        if self._backup is not None and not upload.capture.cut.barrier.kind.is_savepoint:
            self._backup.on_stored(checkpoint_id, [s.path for s in (upload.stored, *upload.earlier) if s is not None])
        parts = (upload.stored, upload.snapshots, upload.earlier, self._consolidations.take_named(upload.earlier))
        self._send(SlotAck(self.generation, self._slot, checkpoint_id, *parts))
        self._unpark(checkpoint_id)

    def _decline(self, capture: Capture, reason: FailureReason, detail: str) -> None:
        self._drop(capture.checkpoint_id)
        self._send(Decline(self.generation, self._slot, capture.checkpoint_id, capture.subtask, reason, detail))

    def _drop(self, checkpoint_id: int) -> None:
        """Drop a checkpoint that is over. Every subtask of the slot reports it; the first report counts."""
        if checkpoint_id in self._ended:
            return
        self._remember(checkpoint_id)
        if self._encoding is not None and self._encoding.capture.checkpoint_id == checkpoint_id:
            self._encoding = None
        for item in self._untargeted.pop(checkpoint_id, []):
            if isinstance(item, Taken):
                self._discard(item.capture)
        self._uploads.drop_waiting(checkpoint_id)
        checkpoint = self._checkpoints.pop(checkpoint_id, None)
        if checkpoint is not None:
            for capture in checkpoint.taken.values():
                self._discard(capture)
            checkpoint.segment.abort()
        self._unpark(checkpoint_id)

    def _refuse(self, capture: Capture) -> None:
        """Discard all that came with a snapshot."""
        self._discard(capture)
        for consolidation in capture.state.consolidations if capture.state is not None else ():
            consolidation.discard()

    @staticmethod
    def _discard(capture: Capture) -> None:
        if capture.state is not None:
            capture.state.discard()

    def _remember(self, checkpoint_id: int) -> None:
        self._ended.add(checkpoint_id)
        self._targets.pop(checkpoint_id, None)


def _notify_backends(upload: Upload) -> None:
    """Report to each state backend where its state is stored: the checkpoint may become a predecessor."""
    segments = [upload.stored or Segment("", 0), *upload.earlier]
    worth = worth_keeping((r for capture in upload.captures for r in capture.keyed), segments)
    for capture in upload.captures:
        if capture.state is not None:
            capture.state.on_stored(stored_states(capture.keyed, segments, worth))
