"""Hands out the splits of several sources, one source after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.base import Source, SourceError, SplitEnumerator
from penstock.connectors.hybrid.numbered import end_of, last_from, take_number, with_number


@dataclass(frozen=True)
class _Current:
    """Holds the source that is read now: its number, from 1, and its enumerator."""

    number: int
    enumerator: SplitEnumerator


class HybridEnumerator(SplitEnumerator):
    """Hands out splits of the next source when all readers have read all of the present one.

    A reader that gets no more splits of a source gets the mark of its end. It asks again when it has read all that it
    has, and only then; so the second request says that this reader has finished the source. Which readers have is not
    in a snapshot: after a restore each gets the mark again.

    A reader for which the last source has no split gets a mark, too. Without this: it still waits for splits that
    continue its former ones, and holds event time back for ever.

    Between two requests, a reader must not get anything but the answer to the first one, or the second could come from
    before the mark. So what the enumerator of a source discovers waits until its readers ask, except for the last
    source, of which nobody has to know the end.

    Raises `SourceError` if `restored` is of a source that `sources` has not.
    """

    def __init__(self, sources: Sequence[Source], parallelism: int, restored: bytes | None) -> None:
        self._sources = sources
        self._parallelism = parallelism
        number, state = (1, None) if restored is None else take_number(restored)
        if not 1 <= number <= len(sources):
            raise SourceError(
                f"the checkpoint was taken while source {number} of a HybridSource was read, and this one has "
                f"{len(sources)}: build it with the sources that it had, in their order, and add others behind them"
            )
        # Replaced, never changed: `discover` and `checkpoint_completed` read it in another thread.
        self._current = self._begin(number, state)
        self._earlier: dict[int, SplitEnumerator] = {}
        """The enumerators of sources that were read to their ends, which may still report positions."""
        self._notified: set[int] = set()
        self._finished: set[int] = set()
        self._has_looked = not self._current.enumerator.discovers
        """True if the present source knows all splits that it has now."""
        self._know_the_last: set[int] = set()
        """The readers that know that the last source is read."""

    def _begin(self, number: int, state: bytes | None) -> _Current:
        return _Current(number, self._sources[number - 1].create_enumerator(self._parallelism, state))

    @property
    def _is_last(self) -> bool:
        return self._current.number == len(self._sources)

    # ---- splits -------------------------------------------------------------------------------------------------

    def next_splits(self, subtask: int) -> list[bytes] | None:
        if subtask in self._notified:
            self._finished.add(subtask)
            if len(self._finished) < self._parallelism:
                return []
            self._earlier[self._current.number] = self._current.enumerator
            self._current = self._begin(self._current.number + 1, None)
            self._notified, self._finished = set(), set()
            self._has_looked = not self._current.enumerator.discovers
        splits = self._current.enumerator.next_splits(subtask)
        if splits == [] and self._has_to_know_the_last(subtask):
            self._know_the_last.add(subtask)
            return [last_from(self._current.number)]
        if splits is not None:
            return [with_number(self._current.number, split) for split in splits]
        if self._is_last:
            return None
        self._notified.add(subtask)
        return [end_of(self._current.number)]

    def _has_to_know_the_last(self, subtask: int) -> bool:
        is_behind_others = self._is_last and self._current.number > 1
        return is_behind_others and self._has_looked and subtask not in self._know_the_last

    def return_splits(self, splits: list[bytes]) -> None:
        """Take back splits.

        Args:
            splits: The splits, with positions.

        Raises:
            SourceError: One is of another source than that which is read now.
        """
        current, returned = self._current, [take_number(split) for split in splits]
        strange = [number for number, _ in returned if number != current.number]
        if strange:
            raise SourceError(
                f"a split of source {strange[0]} of a HybridSource came back while source {current.number} is read: "
                "the checkpoint is damaged; start from another one"
            )
        current.enumerator.return_splits([split for _, split in returned if split is not None])
        self._notified, self._finished = set(), set()

    def snapshot(self) -> bytes:
        return with_number(self._current.number, self._current.enumerator.snapshot())

    # ---- outside the job ----------------------------------------------------------------------------------------

    @property
    def discovers(self) -> bool:  # type: ignore[override]
        """Return whether the present source looks for splits outside the job."""
        return self._current.enumerator.discovers

    @property
    def discovery_number(self) -> int:  # type: ignore[override]
        """Return the number of the source: each is looked at when it begins."""
        return self._current.number

    @property
    def discovery_interval_ms(self) -> float | None:  # type: ignore[override]
        """Return the discovery interval of the present source, in milliseconds; None: once."""
        return self._current.enumerator.discovery_interval_ms

    def discover(self) -> Any:
        current = self._current
        return current, current.enumerator.discover()

    def on_discovered(self, found: Any) -> dict[int, list[bytes]]:
        asked, answer = found
        if asked is not self._current:
            return {}  # the next source has begun meanwhile
        assigned = asked.enumerator.on_discovered(answer)
        self._has_looked = True
        if self._is_last:
            return {s: [with_number(asked.number, split) for split in splits] for s, splits in assigned.items()}
        asked.enumerator.return_splits([split for splits in assigned.values() for split in splits])
        return {}

    @property
    def wants_checkpoints(self) -> bool:  # type: ignore[override]
        """Return whether the present source reports positions outside the job, or an earlier one may."""
        return self._current.number > 1 or self._current.enumerator.wants_checkpoints

    def checkpoint_completed(self, splits: list[bytes]) -> None:
        """Let each source report the positions of its own splits.

        Args:
            splits: The splits of all readers, also of sources that they have read to their ends.
        """
        current, by_number = self._current, dict[int, list[bytes]]()
        for number, split in map(take_number, splits):
            if split is not None:
                by_number.setdefault(number, []).append(split)
        if not splits:
            by_number[current.number] = []
        for number, own in sorted(by_number.items()):
            enumerator = current.enumerator if number == current.number else self._enumerator_of(number)
            if enumerator.wants_checkpoints:
                enumerator.checkpoint_completed(own)

    def _enumerator_of(self, number: int) -> SplitEnumerator:
        """Return the enumerator of an earlier source; one that only reports, if the source ended before a restore."""
        if number not in self._earlier:
            self._earlier[number] = self._sources[number - 1].create_enumerator(self._parallelism, None)
        return self._earlier[number]

    @property
    def is_processing_backlog(self) -> bool:  # type: ignore[override]
        """Return True until the last source is read, and while that one reports a backlog."""
        return not self._is_last or self._current.enumerator.is_processing_backlog
