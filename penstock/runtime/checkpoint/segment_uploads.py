"""Stores the segments of several checkpoints next to each other, so that slow storage delays no later checkpoint.

A slot stores one segment per checkpoint. Where one checkpoint is in progress at a time, its snapshot writer stores it
itself: handing it over would only cost time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock.protocol.values.metadata import Segment, SubtaskSnapshot
from penstock.runtime.checkpoint.capture import Capture
from penstock.runtime.process.mailbox import Mailbox
from penstock.storage.segments import SegmentWriter


@dataclass(eq=False)
class Upload:
    """Holds a segment with all its ranges. `capture`: the one that was closed last. `captures`: one per subtask, in the
    order of `snapshots`. `earlier`: segments of other checkpoints that the snapshots name. `stored` or `error` is the
    outcome.
    """

    capture: Capture
    captures: list[Capture]
    segment: SegmentWriter
    earlier: list[Segment]
    snapshots: list[SubtaskSnapshot]
    stored: Segment | None = None
    error: Exception | None = None

    def store(self) -> None:
        """Store the segment. Blocks."""
        try:
            self.stored = self.segment.finish()
        except Exception as error:
            self.error = error

    def discard(self) -> None:
        """Discard the segment, and notify the states: another checkpoint may name the runs that this one was the first
        to name."""
        self.segment.abort()
        for capture in self.captures:
            if capture.state is not None:
                capture.state.discard()


class Stored(NamedTuple):
    """Reports to the snapshot writer that an upload has its outcome."""

    upload: Upload


class SegmentUploads:
    """Runs as many uploads at once as checkpoints may be in progress; others wait. The snapshot writer's thread calls
    it. `run_apart` runs an upload in a thread of its own.
    """

    def __init__(self, uploads_max: int, run_apart: Callable[[Callable[[], None]], None] | None = None) -> None:
        self._uploads_max = uploads_max
        self._run_apart = run_apart
        self._running: set[Upload] = set()
        self._waiting: deque[tuple[Upload, Mailbox]] = deque()

    @property
    def are_apart(self) -> bool:
        """Return False if the snapshot writer stores segments itself."""
        return self._run_apart is not None and self._uploads_max > 1

    @property
    def are_running(self) -> bool:
        return bool(self._running)

    def submit(self, upload: Upload, mailbox: Mailbox) -> None:
        """Store a segment as soon as there is room. `mailbox` gets `Stored`."""
        self._waiting.append((upload, mailbox))
        self._start_waiting()

    def on_stored(self, upload: Upload) -> None:
        """Note that an upload has ended, and start the next one."""
        self._running.discard(upload)
        self._start_waiting()

    def drop_waiting(self, checkpoint_id: int | None = None) -> None:
        """Discard uploads that have not begun, of one checkpoint or (None) of all."""
        for item in list(self._waiting):
            if checkpoint_id is None or item[0].capture.checkpoint_id == checkpoint_id:
                self._waiting.remove(item)
                item[0].discard()

    def _start_waiting(self) -> None:
        # 2.7: the segments of overlapping checkpoints are stored next to each other.
        while self._waiting and len(self._running) < self._uploads_max:
            upload, mailbox = self._waiting.popleft()
            self._running.add(upload)
            assert self._run_apart is not None
            self._run_apart(partial(_store, upload, mailbox))


def _store(upload: Upload, mailbox: Mailbox) -> None:
    upload.store()
    mailbox.post(Stored(upload))
