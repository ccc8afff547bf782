"""Stores large states whole, range by range, while the snapshot writer has nothing else to do.

Each state gets a segment of its own, which belongs to no checkpoint until one names it. After each range the writer
pauses for the time that the range took, so that the stream can work.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.common.clock import Clock
from penstock.protocol.values.metadata import Segment
from penstock.runtime.process.mailbox import Mailbox
from penstock.state.backend import Consolidation, EncodedState, StoredState
from penstock.storage.segments import Range, SegmentWriter
from penstock.storage.store import ObjectStore

log = logging.getLogger(__name__)

_RESTS_FOR = 1.0
"""The pause after a range, as a multiple of the time that it took to write."""


@dataclass(eq=False)
class _Writing:
    """Holds a state that is being stored. `stored`, `error`: how that ended."""

    consolidation: Consolidation
    segment: SegmentWriter
    ranges: Iterator[EncodedState]
    written: list[tuple[EncodedState, Range]]
    """The ranges, without their content."""
    stored: Segment | None = None
    error: Exception | None = None

    def finish(self) -> None:
        """Make the segment durable. Blocks."""
        try:
            self.stored = self.segment.finish()
        except Exception as error:
            self.error = error


@dataclass(frozen=True)
class Consolidated:
    """Reports to the snapshot writer that a segment is durable, or could not be stored."""

    writing: _Writing


class Consolidations:
    """Stores one state after the other. The snapshot writer's thread calls it. `store` None: nothing is stored.
    `new_segment_path(checkpoint id)` is unique. `run_apart` runs work in a thread of its own; None: it is done at once.
    `codec`: how ranges are compressed.
    """

    def __init__(
        self,
        store: ObjectStore | None,
        new_segment_path: Callable[[int], str],
        clock: Clock,
        run_apart: Callable[[Callable[[], None]], None] | None = None,
        codec: str = "none",
        collected_bytes_max: int | None = None,
    ) -> None:
        self._collected_bytes_max = collected_bytes_max
        self._store = store
        self._new_segment_path = new_segment_path
        self._clock = clock
        self._run_apart = run_apart
        self._codec = codec
        self._waiting: deque[Consolidation] = deque()
        self._writing: _Writing | None = None
        self._is_finishing = False
        self._rests_until_ms = 0.0
        self._unnamed: set[str] = set()
        """The segments that are stored, and that no acknowledged checkpoint has named yet."""

    def add(self, begun: Iterable[Consolidation]) -> None:
        """Store these states, too."""
        self._waiting.extend(begun)

    @property
    def wait_ms(self) -> float | None:
        """Return the time until the next range, in ms; None: there is none to write."""
        if self._is_finishing or (self._writing is None and not self._waiting):
            return None
        return max(0.0, self._rests_until_ms - self._clock.monotonic_ms())

    def write_next(self, mailbox: Mailbox) -> bool:
        """Write the next range, if it is time for it. `mailbox` gets `Consolidated` after the last one."""
        if self.wait_ms != 0.0:
            return False
        began_ms = self._clock.monotonic_ms()
        if self._writing is None:
            self._writing = self._begin(self._waiting.popleft())
        writing = self._writing
        try:
            run = next(writing.ranges, None)
            if run is not None:
                place = writing.segment.add(run.parts, borrowed=True)
                writing.written.append((replace(run, parts=[]), place))
        except Exception as error:  # of the store, or of a user's object when it is pickled
            writing.error, run = error, None
        if run is None:
            self._finish(writing, mailbox)
        ended_ms = self._clock.monotonic_ms()
        self._rests_until_ms = ended_ms + _RESTS_FOR * (ended_ms - began_ms)
        return True

    def _begin(self, consolidation: Consolidation) -> _Writing:
        checkpoint_id = consolidation.checkpoint_id
        segment = SegmentWriter(
            self._store, lambda: self._new_segment_path(checkpoint_id), self._collected_bytes_max, self._codec
        )
        return _Writing(consolidation, segment, consolidation.encode(), [])

    def _finish(self, writing: _Writing, mailbox: Mailbox) -> None:
        self._is_finishing = True

        def finish() -> None:
            if writing.error is None:
                writing.finish()
            mailbox.post(Consolidated(writing))

        if self._run_apart is None:
            finish()
        else:
            self._run_apart(finish)

    def on_consolidated(self, writing: _Writing) -> None:
        """Note that a segment is durable, or could not be stored."""
        self._is_finishing, self._writing = False, None
        segment, name = writing.stored, writing.consolidation.name
        if segment is None:
            writing.segment.abort()
            writing.consolidation.discard()
            if writing.error is not None:
                log.warning("state '%s' could not be stored whole, which is tried again: %s", name[1], writing.error)
            return
        self._unnamed.add(segment.path)
        writing.consolidation.on_stored(
            [
                StoredState(run.operator, run.name, run.entries, segment, *place, run.bounds)
                for run, place in writing.written
            ]
        )

    def take_named(self, earlier: Iterable[Segment]) -> list[str]:
        """Return those of a checkpoint's segments that it is the first to name: they belong to it from now on."""
        named = [segment.path for segment in earlier if segment.path in self._unnamed]
        self._unnamed.difference_update(named)
        return named

    @property
    def is_storing(self) -> bool:
        """Return whether a segment is being made durable, which nothing interrupts."""
        return self._is_finishing

    def close(self) -> None:
        """Discard all that is not stored. What no checkpoint has named is left to a sweep."""
        writing = self._writing
        if writing is not None and not self._is_finishing:
            writing.segment.abort()
            writing.consolidation.discard()
            self._writing = None
        for consolidation in self._waiting:
            consolidation.discard()
        self._waiting.clear()
