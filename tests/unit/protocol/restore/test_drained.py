"""Tests what a start from a savepoint of a drained job leaves out of it."""

from __future__ import annotations

import msgspec

from penstock.protocol.restore.drained import undrained
from penstock.protocol.values.metadata import OperatorPart, SubtaskSnapshot
from tests.unit.protocol.log.log_store import metadata


def test_only_the_states_of_watermark_generators_are_left_out() -> None:
    """A function's own list of that name went with them."""
    own = [OperatorPart("op", "watermarks", [], "split", "LONG"), OperatorPart("op", "splits", [])]
    subtask = SubtaskSnapshot(0, 0, [], [], [], [], [], [*own, OperatorPart("op", "watermarks", [])], [], finished=True)
    drained = msgspec.structs.replace(metadata(1), subtasks=[subtask], drained=True)
    (restored,) = undrained(drained).subtasks
    assert restored.parts == own and not restored.finished
    assert undrained(metadata(1)) == metadata(1)
