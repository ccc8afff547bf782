"""Names the errors of a store that say that something is not what was written."""

from __future__ import annotations

from penstock.storage.sealed import DamagedObject
from penstock.storage.segments import DamagedRange
from penstock.storage.store import ObjectMissing, RangeMissing

DAMAGE = (DamagedObject, DamagedRange, ObjectMissing, RangeMissing)
"""What no restart mends where a checkpoint is read."""
