"""Finds damage to a checkpoint: lists the store errors that mean damage, and checks the lengths of files."""

from __future__ import annotations

from penstock.protocol.values.metadata import Metadata
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.segments import DamagedRange
from penstock.storage.store import ObjectMissing, ObjectStore, RangeMissing, StoreAway, StoreError

DAMAGE = (DamagedObject, DamagedRange, ObjectMissing, RangeMissing)
"""The errors of reading a checkpoint that no restart mends."""


def kind_of(error: StoreError) -> str:
    """Return the object's condition according to a read error: "damaged", "of a newer version", "unreachable" where
    nothing is known of it, or "unreadable" (no permission, for example)."""
    if isinstance(error, DAMAGE):
        return "damaged"
    if isinstance(error, NewerFormat):
        return "of a newer version"
    return "unreachable" if isinstance(error, StoreAway) else "unreadable"


def check_segments(store: ObjectStore, metadata: Metadata) -> None:
    """Check that every file in which something of the checkpoint lies exists in its full length; the content is checked
    while it is read. Raises `DamagedObject`, `ObjectMissing`, `StoreError`.
    """
    with_content = _with_content(metadata)
    for number, segment in enumerate(metadata.segments):
        if number in with_content and (size := store.size(segment.path)) != segment.length_bytes:
            raise DamagedObject(f"{segment.path} has {size} bytes, but was written with {segment.length_bytes}")


def _with_content(metadata: Metadata) -> set[int]:
    """Return the numbers of the segments in which state or rows in flight lie. If rows are given up, the segments that
    held only those rows are not among them. Without this: a user gives up the rows of a lost file, and the restore
    still fails without the file."""
    numbers: set[int] = set()
    for snapshot in metadata.subtasks:
        pieces = [capture.pieces for cut in snapshot.inputs for capture in cut.captures]
        pieces += [capture.pieces for cut in snapshot.outputs for capture in cut.captures]
        pieces += [layer.pieces for layer in snapshot.layers]
        numbers.update(piece.segment for of_one in pieces for piece in of_one)
        numbers.update(state.segment for state in snapshot.keyed)
    return numbers
