"""Lists the consequences of a checkpoint that is complete now, in order: a row for each kind of checkpoint.

The order carries rules. The job restores from the checkpoint before slots and sinks hear of it. Output is committed
only behind the log entry, and nothing is deleted before the entry that no longer retains it. The final checkpoint
retries older commits, because no restart will. Who has asked for a savepoint hears of it last.
"""

from __future__ import annotations

from enum import Enum


class Follow(Enum):
    """Lists the steps. The machine takes those that it decides about; the others are effects."""

    RECORD = "record it in the report"
    RESTORE_FROM = "restore from it from now on"
    COUNT_PROGRESS = "count it as progress since the last failure"
    NEED_NO_SLOTS = "need no slots any more"
    NOTIFY_SLOTS = "tell all slots"
    REPORT_POSITIONS = "let sources report their positions"
    COMMIT = "commit its output"
    COMMIT_LAST = "commit its output, report positions, then finish the job"
    RETRY_COMMITS = "try failed commits again: no restart will"
    DELETE_UNNEEDED = "delete what the log does not retain any more"
    RELEASE_PREDECESSOR = "release its predecessor"
    COMPLETE = "end older checkpoints; trigger the next"
    COMPLETE_LAST = "end all others; trigger nothing any more"
    NOTIFY_SLOTS_SAVED = "tell all slots, which commit nothing"
    COMPLETE_SAVED = "trigger the next that waited for it"
    ANSWER = "answer whoever has asked for the savepoint"
    RESCALE = "restart from it, if it was taken for a rescale"


class PublishedKind(Enum):
    """Lists the kinds of checkpoints by what follows them."""

    CHECKPOINT = "checkpoint"
    FINAL = "final checkpoint"
    STOPPED = "savepoint that stops the job"
    """It is the job's final checkpoint, too."""
    SAVED = "savepoint of a job that continues"
    """It has no entry in the log: nothing restarts from it, and nothing is committed for it."""
    COMMITTED = "committed without an entry"
    """The end of a job without checkpoints: it only collected what sinks have committed now."""


_FINAL = (
    Follow.RECORD,
    Follow.RESTORE_FROM,
    Follow.COUNT_PROGRESS,
    Follow.NEED_NO_SLOTS,
    Follow.NOTIFY_SLOTS,
    Follow.COMMIT_LAST,
    Follow.RETRY_COMMITS,
    Follow.DELETE_UNNEEDED,
    Follow.RELEASE_PREDECESSOR,
    Follow.COMPLETE_LAST,
)

FOLLOWS: dict[PublishedKind, tuple[Follow, ...]] = {
    PublishedKind.CHECKPOINT: (
        Follow.RECORD,
        Follow.RESTORE_FROM,
        Follow.COUNT_PROGRESS,
        Follow.NOTIFY_SLOTS,
        Follow.REPORT_POSITIONS,
        Follow.COMMIT,
        Follow.DELETE_UNNEEDED,
        Follow.RELEASE_PREDECESSOR,
        Follow.COMPLETE,
        Follow.RESCALE,
    ),
    PublishedKind.FINAL: _FINAL,
    PublishedKind.STOPPED: (*_FINAL, Follow.ANSWER),
    PublishedKind.SAVED: (Follow.NOTIFY_SLOTS_SAVED, Follow.COMPLETE_SAVED, Follow.ANSWER),
    PublishedKind.COMMITTED: (Follow.COMPLETE_LAST,),
}


def markdown() -> str:
    """Return the rows as documents show them."""
    lines = ["| checkpoint | what follows, in order |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {kind.value} | {'; '.join(s.value for s in row)} |" for kind, row in FOLLOWS.items())]
    )
