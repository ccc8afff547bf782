"""Which files of a job's directory nobody needs: everything is classified first, then deleted by exact name.

A process that dies between writing a segment and acknowledging it leaves a file that no metadata will ever name. Such
a file is known by its generation, which is older than the running one, and by the metadata of what is retained. It is
deleted only after a grace time, in which slots of the older generation have ended; log entries never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.protocol.elements import Generation
from penstock.protocol.publication import Retained


@dataclass(frozen=True)
class StoredFile:
    """A segment (with the generation that its name carries) or a `_metadata` (with its checkpoint's id)."""

    path: str
    generation: Generation | None = None
    checkpoint_id: int | None = None


def orphans(
    files: Iterable[StoredFile],
    retained: Sequence[Retained],
    newest_id: int,
    running: Generation,
    in_use: frozenset[str] = frozenset(),
) -> list[str]:
    """`in_use`: files of pending checkpoints, and those that a running gate still reads. Nothing is an orphan while
    the metadata of a retained checkpoint could not be read, because nobody knows what it names."""
    if any(r.segments is None for r in retained):
        return []
    named = in_use.union((r.path for r in retained), *(r.segments or () for r in retained))
    found = []
    for file in files:
        if file.path in named:
            continue
        is_old_segment = file.generation is not None and file.generation < running
        is_passed_metadata = file.checkpoint_id is not None and file.checkpoint_id <= newest_id
        if is_old_segment or is_passed_metadata:
            found.append(file.path)
    return sorted(found)
