"""Decides which objects of a job live: those that a checkpoint names which the job keeps.

A checkpoint names its own metadata and segments, by exact paths: those that it has written, and those of earlier
checkpoints that hold what has not changed since. An object lives as long as one of those that are kept names it, or a
pending one may: each has a predecessor, the newest checkpoint in the log when it was triggered, and may name the
segments that this predecessor names, and no others. The predecessor is pinned until the pending one has ended. What
nobody needs any more is deleted by exact path, after the log entry that no longer retains its checkpoint. What a crash
left is found by a sweep, which compares what is there with what is named.

Nothing here touches a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata


@dataclass(frozen=True)
class Retained:
    """Describes a completed checkpoint that is kept. `path`: the path of its metadata. `segments` None: its metadata
    could not be read, so it may name any segment.
    """

    checkpoint_id: int
    path: str
    segments: frozenset[str] | None

    @classmethod
    def of(cls, path: str, metadata: Metadata) -> Retained:
        return cls(metadata.checkpoint_id, path, frozenset(segment.path for segment in metadata.segments))

    @property
    def names(self) -> frozenset[str] | None:
        """Return the paths of all objects that the checkpoint needs; None if they are not known."""
        return None if self.segments is None else self.segments | {self.path}


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
    """Decides the objects of its job that one driver keeps. `retained_max`: the number of newest checkpoints to retain.

    One object knows the retained and the pinned checkpoints, and decides about both at one moment. So there is no
    moment at which a segment has lost its last retained checkpoint, and a pending one begins to rely on it.
    """

    def __init__(self, retained_max: int) -> None:
        self.retained: list[Retained] = []
        """The retained checkpoints, the oldest first."""
        self.claimed: str | None = None
        """The path of the checkpoint or savepoint of another job that this job owns. Each entry of the log names it
        until it has been deleted, so whichever driver comes next deletes it."""
        self._is_claim_taken = False
        self._retained_max = max(retained_max, 1)
        self._pinned: dict[int, Retained] = {}
        """Pending checkpoint -> its predecessor."""
        self._dropped: frozenset[str] = frozenset()
        """Segments of checkpoints that the log does not retain any more, and that have not been deleted."""

    @property
    def named(self) -> frozenset[str] | None:
        """Return the paths of all objects that must stay; None if any must."""
        return named_by((*self.retained, *self._pinned.values()))

    # ---- pending checkpoints ------------------------------------------------------------------------------------

    def pin_predecessor(self, checkpoint_id: int) -> Retained | None:
        """Return the checkpoint whose segments a new pending one may name; None: it writes all of its own. They stay
        until `unpin`.
        """
        if not self.retained or self.retained[-1].segments is None:
            return None
        predecessor = self._pinned[checkpoint_id] = self.retained[-1]
        return predecessor

    def predecessor_of(self, checkpoint_id: int) -> Retained | None:
        """Return the predecessor of a pending checkpoint."""
        return self._pinned.get(checkpoint_id)

    def unpin(self, checkpoint_id: int) -> tuple[str, ...]:
        """Release the predecessor of a checkpoint that has ended. Returns the paths of the objects to delete."""
        # 11.17: what a pending checkpoint may name stays until it has ended.
        return () if self._pinned.pop(checkpoint_id, None) is None else self._take_unneeded()

    # ---- what the log retains -----------------------------------------------------------------------------------

    def with_newest(self, newest: Retained) -> list[Retained]:
        """Return the checkpoints that are retained once `newest` is in the log."""
        return [*self.retained, newest][-self._retained_max :]

    def replace(self, retained: list[Retained]) -> tuple[str, ...]:
        """Replace the retained checkpoints by those that a new log entry names. Returns the paths of the objects to
        delete.

        Segments stay as long as a pending checkpoint may name them, and as long as it is not known what a retained one
        names.
        """
        dropped = [checkpoint for checkpoint in self.retained if checkpoint not in retained]
        self.retained = retained
        self._dropped = self._dropped.union(*(checkpoint.segments or () for checkpoint in dropped))
        return (*(checkpoint.path for checkpoint in dropped), *self._take_unneeded())

    def _take_unneeded(self) -> tuple[str, ...]:
        named = self.named
        if named is None:
            return ()
        unneeded = self._dropped - named
        self._dropped -= unneeded
        return tuple(sorted(unneeded))

    # ---- what the job started from ------------------------------------------------------------------------------

    def claim(self, path: str) -> None:
        """Claim the checkpoint that this job started from. It counts as the oldest that is retained."""
        self.claimed = path

    def take_subsumed_claim(self) -> str | None:
        """Return the claimed checkpoint, to be deleted, once the job's own checkpoints fill `retained_max`. It is
        returned once: if it cannot be deleted, the next driver tries again, or the end of the job.
        """
        if self._is_claim_taken or len(self.retained) < self._retained_max:
            return None
        self._is_claim_taken = self.claimed is not None
        return self.claimed

    def take_claim_at_end(self, has_checkpoints: bool) -> str | None:
        """Return the claimed checkpoint, to be deleted at the job's end: with all others, or because it is subsumed and
        nobody has deleted it yet. `has_checkpoints`: the job has completed some of its own. Without them it stays: it
        is all that there is.
        """
        is_retained = not has_checkpoints or 0 < len(self.retained) < self._retained_max
        return None if is_retained else self.claimed

    def release_claim(self) -> None:
        """Note that the claimed checkpoint has been deleted."""
        self.claimed = None


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
        """Return whether the sweep has to read the metadata, to know who wrote them: those of a checkpoint above the
        newest in the log. Either that checkpoint is being published, or a driver wrote the metadata before it found
        that it had lost the log."""
        return found.checkpoint_id > self.newest_id

    def deletable(self, found: Iterable[Found], named: frozenset[str] | None) -> list[str]:
        """Return the paths of the objects that nobody can need any more. `named`: by what is retained now."""
        if named is None:
            return []
        # 11.11: only what no retained metadata names is swept.
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
        """Plan a sweep of the objects that generations older than `running` left behind. A planned sweep stays, and the
        next follows it. Without this: a job that restarts all the time puts off its sweep for ever."""
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
