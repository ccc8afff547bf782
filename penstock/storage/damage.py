"""Names the errors of a store that say that something is not what was written."""

from __future__ import annotations

from penstock.storage.sealed import DamagedObject
from penstock.storage.segments import DamagedRange
from penstock.storage.store import ObjectMissing, RangeMissing

DAMAGE = (DamagedObject, DamagedRange, ObjectMissing, RangeMissing)
"""The errors of reading a checkpoint that no restart mends."""
