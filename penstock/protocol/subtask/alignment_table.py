"""Holds the states of one checkpoint's alignment in a subtask, and what each event does in each of them."""

from __future__ import annotations

from penstock.protocol.machine import Cell, MachineState, Table


class AlignmentState(MachineState):
    """Lists how far a checkpoint can be in this subtask."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    COLLECTING_ALIGNED = "aligning"
    COLLECTING_UNALIGNED = "capturing"
    ENDED = "ended"


_UNKNOWN, _WAITING, _ALIGNED, _UNALIGNED, _ENDED = AlignmentState
_ANY_OPEN = (_UNALIGNED, _ENDED)

TABLE: Table[AlignmentState] = Table(
    "the alignment",
    {
        "triggered": {
            _UNKNOWN: Cell("snapshot at once: a source has no channels; late: decline", (_ENDED,)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "queued": {
            _UNKNOWN: Cell("remember its place; late: decline; overdue: turn", (_WAITING, *_ANY_OPEN)),
            _WAITING: Cell("remember its place; overdue: turn", (_WAITING, *_ANY_OPEN)),
            _ALIGNED: Cell("remember its place; overdue: turn", (_ALIGNED, *_ANY_OPEN)),
            _UNALIGNED: Cell("take it out, limit that channel's window", _ANY_OPEN),
            _ENDED: Cell("take it out", (_ENDED,)),
        },
        "reached": {
            _WAITING: Cell("block; all in: snapshot", (_ALIGNED, *_ANY_OPEN)),
            _ALIGNED: Cell("block; all in: snapshot", (_ALIGNED, *_ANY_OPEN)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "urgent": {
            _UNKNOWN: Cell("turn; late: decline", _ANY_OPEN),
            _WAITING: Cell("turn", _ANY_OPEN),
            _ALIGNED: Cell("turn", _ANY_OPEN),
            _UNALIGNED: Cell("limit that channel's window", _ANY_OPEN),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "deadline": {
            _WAITING: Cell("turn", _ANY_OPEN),
            _ALIGNED: Cell("turn", _ANY_OPEN),
        },
        "cancel": {
            _UNKNOWN: Cell("decline", (_ENDED,)),
            _WAITING: Cell("decline", (_ENDED,)),
            _ALIGNED: Cell("decline", (_ENDED,)),
            _UNALIGNED: Cell("decline", (_ENDED,)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "over": {
            _UNKNOWN: Cell("drop what was captured", (_ENDED,)),
            _WAITING: Cell("drop what was captured", (_ENDED,)),
            _ALIGNED: Cell("drop what was captured", (_ENDED,)),
            _UNALIGNED: Cell("drop what was captured", (_ENDED,)),
            _ENDED: Cell("drop what was captured", (_ENDED,)),
        },
    },
)
