"""Holds the states of a driver's side of the job's log, and which event may lead from one to another."""

from __future__ import annotations

from penstock.protocol.machine import Cell, MachineState, Table


class PublicationState(MachineState):
    """Lists what the driver does with the log, one conversation at a time."""

    NEW = "new"
    TAKING_OVER = "taking over"
    """The fence is being appended, then what lies below it is read."""
    OWNER = "owner"
    """The log is ours as far as we know, and nothing is under way."""
    WRITING = "writing metadata"
    APPENDING = "appending"
    """A checkpoint's metadata is durable; its entry may exist."""
    ENDING = "ending"
    ENDED = "ended"
    LOST = "lost"
    """Another driver owns the job, or it is not known who does: nothing may be deleted any more."""


_NEW, _TAKING, _OWNER, _WRITING, _APPENDING, _ENDING, _ENDED, _LOST = PublicationState
_REFUSED = {_LOST: Cell("raise the error again", (_LOST,))}

TABLE: Table[PublicationState] = Table(
    "the publication",
    {
        "take over": {_NEW: Cell("append a fence, read what lies below it", (_TAKING,))},
        "taken over": {_TAKING: Cell("keep what the newest entry retains", (_OWNER,))},
        "publish": {
            _OWNER: Cell("write the metadata; a newer one is in the log: skip it", (_OWNER, _WRITING)),
            **_REFUSED,
        },
        "metadata written": {_WRITING: Cell("append the entry", (_APPENDING,))},
        "metadata refused": {_WRITING: Cell("fail the checkpoint; the id was taken: name a free one", (_OWNER,))},
        "entry counts": {
            _APPENDING: Cell("name what may be deleted", (_OWNER,)),
            _ENDING: Cell("name what may be deleted", (_ENDED,)),
        },
        "entry refused": {_APPENDING: Cell("fail the checkpoint; the position stays free", (_OWNER,))},
        "check": {_OWNER: Cell("list the log", (_OWNER,)), **_REFUSED},
        "end": {_OWNER: Cell("append the end", (_ENDING,)), **_REFUSED},
        "lost": {
            state: Cell("delete nothing any more", (_LOST,))
            for state in (_TAKING, _OWNER, _WRITING, _APPENDING, _ENDING)
        },
    },
)
