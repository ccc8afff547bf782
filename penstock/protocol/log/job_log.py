"""Implements one driver's side of a job's log: append, verify, read, and shorten. `PROTOCOL.md`, section 11, has the
rules.

The log is a sequence of positions, each created if absent. Every entry names a `base`: the log counts from there, and
everything below may have been deleted. So a position can be free because it is new, or because it was deleted, and
"created" alone does not distinguish the two. After each creation the driver lists the log, and its entry counts only if
the newest entry does not say that the position lies below the base.

Nothing here touches a store; see `publication` for how conversations work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.protocol.log.log_operations import (
    AppendEntry,
    Conversation,
    Damaged,
    Done,
    Exists,
    Gone,
    ListLog,
    ListMetadata,
    Missing,
    ReadEntry,
    Refused,
    Unknown,
    Wait,
)
from penstock.protocol.values.log_entries import Fence, LogEntry

ATTEMPTS_MAX = 20
"""The number of times that an operation of unknown outcome is repeated; with the waits below that is about half a
minute."""

ENTRIES_KEPT = 8
"""The number of entries that a checkpoint's entry leaves in the log, itself included. One would do for a resume; the
others tell people what happened last."""

FenceAt = Callable[[int, int, str | None], Fence]
"""(sequence, base, what is claimed) -> the fence of this driver at that position."""

WAIT_FIRST_MS = 50.0
WAIT_MAX_MS = 2000.0


class PublicationError(Exception):
    """Ends the driver's ownership of the job. Nothing may be deleted after it."""


class Fenced(PublicationError):
    """Signals that another driver owns the job."""


class LogRefused(PublicationError):
    """Signals that the job may not be started or resumed like this; the message says what to do."""


class LogExists(LogRefused):
    """Signals that a job was to be started in a directory where another driver has started it."""


class OutcomeUnknown(PublicationError):
    """Signals that the store did not answer for too long whether an operation was carried out."""


class LogGone(PublicationError):
    """Signals that the job's directory was removed."""


LOG_EXISTS = (
    "the job's directory has a log already: another driver has run this job, or runs it now. "
    "To resume it (which stops the other one) pass the job's directory with -s, that is the option "
    "execution.state-recovery.path; to start afresh give another pipeline.job-id or checkpoint directory. With "
    "high-availability.type: filesystem (--ha) each start resumes the job, or starts it if there is no log."
)

IGNORES_CONDITIONS = (
    "the checkpoint storage let an object be created that existed already. Without create-if-absent "
    "two drivers could both own the job, so exactly-once cannot be promised there; use another "
    "execution.checkpointing.dir."
)


class JobLog:
    """Holds this driver's view of the log. `base`: positions below it may be deleted. `next_sequence`: where this
    driver appends next. `below_base`: the positions below `base` that still existed when the newest entry of this
    driver was verified. `entries_kept` (ENTRIES_KEPT): the newest entries, which are not deleted.
    """

    def __init__(self, incarnation: str, entries_kept: int | None = None) -> None:
        self._incarnation = incarnation
        self._entries_kept = ENTRIES_KEPT if entries_kept is None else entries_kept
        self.base = 0
        self.next_sequence = 0
        self.below_base: tuple[int, ...] = ()
        self._lost_by: LogEntry | None = None

    # ---- taking over --------------------------------------------------------------------------------------------

    def take_over(self, fence_at: FenceAt, *, resume: bool) -> Conversation[Fence]:
        """Append the fence that `fence_at` makes at the log's end. Return it once it is verified.

        Raises `LogRefused` for a fresh start (`resume` False) into a log that has entries, and for a store that lets
        an object be created twice."""
        for attempt in range(ATTEMPTS_MAX):
            positions: list[int] = yield from self.ask_until_known(ListLog())
            if positions and not resume:
                raise LogExists(LOG_EXISTS)
            newest: LogEntry | None = None
            if positions:
                newest = yield from self._read_if_there(max(positions))
                if newest is None:
                    # Another driver has shortened the log since it was listed.
                    yield Wait(wait_ms(attempt))
                    continue
            fence = yield from self._append_fence(fence_at, newest, resume)
            is_exclusive = yield from self._probe(fence)
            if (yield from self._counts(fence)):
                if not is_exclusive:
                    raise LogRefused(IGNORES_CONDITIONS)
                self.base, self.next_sequence = fence.base, fence.sequence + 1
                return fence
            self._lost_by = None
        raise OutcomeUnknown(
            "the end of the job's log could not be found: another driver appends to it all the time. Stop that "
            "driver, then resume the job from its directory."
        )

    def _append_fence(self, fence_at: FenceAt, newest: LogEntry | None, resume: bool) -> Conversation[Fence]:
        """Append the fence at the first free position behind `newest`. It repeats the base and the claim of the entry
        directly below.
        """
        while True:
            if newest is None:
                fence = fence_at(0, 0, None)
            else:
                # 3.8b: a fence repeats the base (11.3) and the claim of the entry below.
                fence = fence_at(newest.sequence + 1, newest.base, newest.claimed)
            # 11.2: only after its fence does a driver read what to restore.
            found = yield from self._append(fence)
            if not isinstance(found, LogEntry):
                return fence
            if not resume:
                raise LogExists(LOG_EXISTS)
            newest = found

    def _probe(self, fence: Fence) -> Conversation[bool]:
        """Probe whether the store refuses to create the fence a second time."""
        for attempt in range(ATTEMPTS_MAX):
            answer = yield AppendEntry(fence)
            if isinstance(answer, (Exists, Done)):
                return isinstance(answer, Exists)
            yield Wait(wait_ms(attempt))
        raise OutcomeUnknown(
            f"could not find out whether the checkpoint storage creates objects only if absent: {detail(answer)}. "
            "Start the job again when the storage answers."
        )

    # ---- appending ----------------------------------------------------------------------------------------------

    def base_after(self, sequence: int) -> int:
        """Return the base that a checkpoint's entry at `sequence` names."""
        # 11.3: only a checkpoint's entry raises the base, and not above the newest one.
        return max(self.base, sequence - self._entries_kept + 1)

    def append_next(self, entry: LogEntry, gives_up: bool = False) -> Conversation[Refused | None]:
        """Append at the position that is ours if nobody has taken over, and verify. Raises `Fenced`.

        `gives_up`: see `_append`."""
        self.raise_if_lost()
        found = yield from self._append(entry, gives_up)
        if isinstance(found, Refused):
            return found
        if found is not None:
            # 11.1: a foreign entry at our position: the job was taken over.
            self._lost_by = found
        elif (yield from self._counts(entry)):
            self.next_sequence += 1
            self.base = entry.base
        self.raise_if_lost()
        return None

    def _append(self, entry: LogEntry, gives_up: bool = False) -> Conversation[LogEntry | Refused | None]:
        """Append an entry; return None if it is at its position now, else the entry that is there instead.

        `gives_up`: if the store says that the entry was certainly not written (a full disk), return `Refused` instead
        of trying again. The position stays free, so the checkpoint fails and the job continues. Without this: the job
        waits half a minute for its log, and then ends."""
        answer: Any = None
        is_certain = gives_up
        for attempt in range(ATTEMPTS_MAX):
            answer = yield AppendEntry(entry)
            if isinstance(answer, Done):
                return None
            if isinstance(answer, Refused) and is_certain:
                return answer
            _raise_if_gone(answer)
            is_certain = False
            if isinstance(answer, Exists):
                found = yield ReadEntry(entry.sequence)
                if isinstance(found, LogEntry):
                    return None if found == entry else found
                answer = found
            yield Wait(wait_ms(attempt))
        raise OutcomeUnknown(
            f"whether entry {entry.sequence} of the job's log was written could not be found out: {detail(answer)}. "
            "Everything was kept; resume the job from its directory when the storage answers again."
        )

    def _counts(self, entry: LogEntry) -> Conversation[bool]:
        """Verify that the position of an entry that we created had not been deleted before.

        The list begins after the creation, so it shows the entry that named a base above this position, if there was
        one, or a newer one; and bases never fall."""
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            # 11.6: the list begins after the creation of `entry`, so it shows that entry, or a newer one.
            positions: list[int] = yield from self.ask_until_known(ListLog())
            # 11.5: an entry counts unless a newer one has a base above it.
            newest = max(positions, default=-1)
            # 11.4: from here on what lies below the base may be deleted.
            if newest == entry.sequence:
                self.below_base = tuple(p for p in positions if p < entry.base)
                return True
            if newest > entry.sequence:
                answer = yield ReadEntry(newest)
                if isinstance(answer, LogEntry):
                    # 11.8: what others have left below the base is found here, too.
                    if answer.base <= entry.sequence:
                        self.below_base = tuple(p for p in positions if p < entry.base)
                        return True
                    self._lost_by = answer
                    return False
            yield Wait(wait_ms(attempt))
        raise OutcomeUnknown(
            f"whether entry {entry.sequence} stands at the end of the job's log could not be found out: "
            f"{detail(answer)}. Everything was kept; resume the job from its directory when the storage answers again."
        )

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self, sequence: int) -> Conversation[LogEntry]:
        """Return an entry from the base on. Raises `Fenced` if it is missing because a newer owner has shortened the
        log behind a fence of its own."""
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            answer = yield ReadEntry(sequence)
            if isinstance(answer, LogEntry):
                return answer
            _raise_if_gone(answer)
            if isinstance(answer, Damaged):
                break
            if isinstance(answer, Missing) and self.next_sequence:
                yield from self.check_ours()
            yield Wait(wait_ms(attempt))
        raise OutcomeUnknown(
            f"entry {sequence} of the job's log cannot be read: {detail(answer)}. Everything was kept; resume the "
            "job from its directory when the storage answers again."
        )

    def _read_if_there(self, sequence: int) -> Conversation[LogEntry | None]:
        answer = yield ReadEntry(sequence)
        if isinstance(answer, Missing):
            return None
        if isinstance(answer, LogEntry):
            return answer
        return (yield from self.read(sequence))

    def ask_until_known(self, operation: ListLog | ListMetadata) -> Conversation[Any]:
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            answer = yield operation
            if isinstance(answer, list):
                return answer
            _raise_if_gone(answer)
            yield Wait(wait_ms(attempt))
        raise OutcomeUnknown(
            f"the job's directory cannot be listed: {detail(answer)}. Everything was kept; resume the job from its "
            "directory when the storage answers again."
        )

    # ---- ownership ----------------------------------------------------------------------------------------------

    def check_ours(self) -> Conversation[None]:
        """Raise `Fenced` if another driver has appended to the log. An unknown answer proves nothing."""
        # 11.7: a newer owner may have published, and deleted what we look for.
        positions = yield ListLog()
        newest = max(positions, default=-1) if isinstance(positions, list) else -1
        if newest >= self.next_sequence:
            found = yield ReadEntry(newest)
            if isinstance(found, LogEntry) and found.incarnation != self._incarnation:
                self._lost_by = found
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise `Fenced` if a position of ours is known to be another driver's."""
        other = self._lost_by
        if other is None:
            return
        who = f"the driver of process {other.pid} on {other.host}" if isinstance(other, Fence) else "another driver"
        raise Fenced(
            f"this job was taken over by {who} (entry {other.sequence} of its log). This driver stops; "
            "it has published and committed nothing since, and deletes nothing."
        )


def _raise_if_gone(answer: Any) -> None:
    if isinstance(answer, Gone):
        raise LogGone(answer.detail)


def wait_ms(attempt: int) -> float:
    return min(WAIT_FIRST_MS * float(2**attempt), WAIT_MAX_MS)


def detail(answer: Any) -> str:
    return answer.detail if isinstance(answer, (Unknown, Refused, Damaged, Gone)) else "it is missing"
