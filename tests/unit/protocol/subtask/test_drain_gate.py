"""Tests a subtask's side of draining: when it follows a release, and what it reports."""

from __future__ import annotations

from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.values.elements import Generation, SubtaskId


def held() -> DrainGate:
    draining = DrainGate(SubtaskId(1, 0), Generation(1, 1), 0)
    draining.hold()
    return draining


def test_who_is_not_told_to_hold_works_and_reports_nothing() -> None:
    draining = DrainGate(SubtaskId(1, 0), Generation(1, 1), 0)
    assert draining.is_over and not draining.held
    draining.on_release(False, [])
    assert draining.is_over and draining.report({}, {}, True, True) is None


def test_a_release_waits_for_the_checkpoints_that_it_names() -> None:
    draining = held()
    draining.on_checkpoint_ended(4)
    draining.on_release(False, [4, 5, 6])
    draining.on_checkpoint_ended(6)
    assert draining.held
    draining.on_checkpoint_ended(5)
    assert not draining.held and not draining.is_over


def test_the_last_release_waits_its_turn_behind_the_first() -> None:
    draining = held()
    draining.on_release(False, [7])
    draining.on_release(True, [])
    assert draining.held, "what the first waits for has not ended"
    draining.on_checkpoint_ended(7)
    assert draining.is_over


def test_it_reports_once_for_each_change() -> None:
    draining = held()
    assert draining.report({3: 0}, {5: 3}, True, True) is None, "held: nobody asks"
    draining.on_release(False, [])
    first = draining.report({3: 0}, {5: 3}, True, True)
    assert first is not None and (first.sequence, first.applied, first.emitted) == (1, {3: 0}, {5: 3})
    assert draining.report({3: 0}, {5: 3}, True, True) is None
    second = draining.report({3: 4}, {5: 3}, True, False)
    assert second is not None and (second.sequence, second.applied, second.idle) == (2, {3: 4}, False)
    draining.on_release(True, [])
    assert draining.report({3: 9}, {5: 3}, True, True) is None, "draining is over"
