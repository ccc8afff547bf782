"""Decides which objects of a job live: those that a checkpoint names which the job keeps.

A checkpoint names its own metadata and its segments, by exact paths. An object lives as long as one of those that are
kept names it. What no kept checkpoint names any more is deleted by exact path, after the log entry that no longer
retains its checkpoint. What a crash left is found by a sweep, which compares what is there with what is named.

Nothing here touches a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata


@dataclass(frozen=True)
class Retained:
    """Describes a completed checkpoint that is kept. `path`: that of its metadata. `segments` None: its metadata could
    not be read, so it may name any segment.
    """

    checkpoint_id: int
    path: str
    segments: frozenset[str] | None

    @classmethod
    def of(cls, path: str, metadata: Metadata) -> Retained:
        return cls(metadata.checkpoint_id, path, frozenset(segment.path for segment in metadata.segments))

    @property
    def names(self) -> frozenset[str] | None:
        """Return the paths of all objects that it needs; None if they are not known."""
        return None if self.segments is None else self.segments | {self.path}


@dataclass(frozen=True)
class Claimed:
    """Describes a checkpoint of another job that this job started from and owns now. `root`: that job's directory."""

    root: str
    checkpoint: Retained

    @property
    def names(self) -> tuple[str, ...]:
        """Return the paths of its objects below `root`, the metadata first."""
        return (self.checkpoint.path, *sorted(self.checkpoint.segments or ()))


def named_by(checkpoints: Iterable[Retained]) -> frozenset[str] | None:
    """Return the paths of all objects that these checkpoints need; None if one of them may need any."""
    named: set[str] = set()
    for checkpoint in checkpoints:
        names = checkpoint.names
        if names is None:
            return None
        named |= names
    return frozenset(named)


class Retention:
    """Decides what one driver keeps of its job. `retained_max`: so many checkpoints, the newest."""

    def __init__(self, retained_max: int) -> None:
        self.retained: list[Retained] = []
        """The oldest first."""
        self._retained_max = max(retained_max, 1)
        self._claimed: Claimed | None = None

    @property
    def named(self) -> frozenset[str] | None:
        """Return the paths of all objects that must stay; None if any must."""
        return named_by(self.retained)

    def with_newest(self, newest: Retained) -> list[Retained]:
        """Return what is retained once `newest` is in the log."""
        return [*self.retained, newest][-self._retained_max :]

    def replace(self, retained: list[Retained]) -> tuple[str, ...]:
        """Replace the retained checkpoints by those that a new log entry names. Returns the paths of the objects to
        delete.

        Where it is not known what a retained checkpoint names, segments stay: a later sweep finds them.
        """
        dropped = [checkpoint for checkpoint in self.retained if checkpoint not in retained]
        self.retained = retained
        named = self.named
        paths = tuple(checkpoint.path for checkpoint in dropped)
        if named is None:
            return paths
        segments = frozenset[str]().union(*(checkpoint.segments or () for checkpoint in dropped))
        return (*paths, *sorted(segments - named))

    def claim(self, claimed: Claimed) -> None:
        """Claim the checkpoint that this job started from. It counts as the oldest that is retained."""
        self._claimed = claimed

    def take_subsumed_claim(self) -> Claimed | None:
        """Return the claimed checkpoint, to be deleted, once so many own ones are retained that it is none of them."""
        if len(self.retained) < self._retained_max:
            return None
        claimed, self._claimed = self._claimed, None
        return claimed


# ---- the sweep ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundSegment:
    """Describes a segment in the job's directory. `generation`: the one that wrote it."""

    path: str
    generation: Generation


@dataclass(frozen=True)
class FoundMetadata:
    """Describes a checkpoint's metadata in the job's directory. `generation`: the one that wrote it; None: not read, or
    not readable.
    """

    path: str
    checkpoint_id: int
    generation: Generation | None = None


Found = FoundSegment | FoundMetadata


@dataclass(frozen=True)
class Sweep:
    """Looks at the job's directory once. `running`: what older generations wrote may be deleted. `newest_id`: that of
    the newest checkpoint in the log.

    A writer of an older generation may still be at work, so a sweep comes after a grace time. It never names log
    entries, nor objects that it does not know.
    """

    running: Generation
    newest_id: int

    def must_read(self, found: FoundMetadata) -> bool:
        """Return whether it must be known who wrote this: it is above the newest in the log, so either its checkpoint
        is being published, or a driver wrote it before it found that it had lost the log."""
        return found.checkpoint_id > self.newest_id

    def deletable(self, found: Iterable[Found], named: frozenset[str] | None) -> list[str]:
        """Return the paths of the objects that nobody can need any more. `named`: by what is retained now."""
        if named is None:
            return []
        unnamed = [one for one in found if one.path not in named]
        left_behind = [one.path for one in unnamed if self._is_left_behind(one)]
        return left_behind + [one.path for one in unnamed if self._is_unpublished(one)]

    def _is_left_behind(self, found: Found) -> bool:
        if isinstance(found, FoundSegment):
            return found.generation < self.running
        return found.checkpoint_id <= self.newest_id

    def _is_unpublished(self, found: Found) -> bool:
        if isinstance(found, FoundSegment) or not self.must_read(found):
            return False
        return found.generation is not None and found.generation < self.running


class SweepSchedule:
    """Schedules sweeps: one is due a grace time after a generation has begun to run."""

    def __init__(self, grace_ms: float) -> None:
        self._grace_ms = grace_ms
        self._planned: tuple[float, Generation] | None = None
        self._following: Generation | None = None

    def plan(self, running: Generation, now_ms: float) -> None:
        """Plan a sweep of what generations older than `running` left behind. One that is planned stays, and the next
        follows it. Without this: a job that restarts all the time puts off its sweep for ever."""
        if self._planned is None:
            self._planned = (now_ms + self._grace_ms, running)
        else:
            self._following = running

    def cancel(self) -> None:
        self._planned = self._following = None

    def next_deadline_ms(self) -> float | None:
        return None if self._planned is None else self._planned[0]

    def take_due(self, now_ms: float) -> Generation | None:
        """Return the generation whose sweep is due now, if one is, and plan the one that follows it."""
        if self._planned is None or self._planned[0] > now_ms:
            return None
        _, running = self._planned
        following, self._following, self._planned = self._following, None, None
        if following is not None:
            self.plan(following, now_ms)
        return running
