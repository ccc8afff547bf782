"""Names the errors of a store that say that something is not what was written."""

from __future__ import annotations

from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.segments import DamagedRange
from penstock.storage.store import ObjectMissing, RangeMissing, StoreAway, StoreError

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
