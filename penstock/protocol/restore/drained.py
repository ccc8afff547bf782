"""Prepares a savepoint of a drained job for a restore."""

from __future__ import annotations

import msgspec

from penstock.protocol.values.metadata import Metadata, SubtaskSnapshot

_WATERMARKS = "watermarks"


def undrained(metadata: Metadata) -> Metadata:
    """Return the metadata as a restore reads it: after a drain, event time starts again and nothing has finished.

    Draining sends the last watermark and the end of data through the job although the sources have more to read.
    """
    if not metadata.drained:
        return metadata
    subtasks = [_undrained(snapshot) for snapshot in metadata.subtasks]
    return msgspec.structs.replace(metadata, subtasks=subtasks)


def _undrained(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
    return msgspec.structs.replace(
        snapshot,
        inputs=[msgspec.structs.replace(cut, times=[]) for cut in snapshot.inputs],
        parts=[part for part in snapshot.parts if part.kind or part.name != _WATERMARKS],
        watermark_ms=None,
        current_ms=None,
        floors=[],
        idle=False,
        pauses={},
        finished=False,
    )
