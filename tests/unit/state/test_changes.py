"""Tests for the component that knows what has changed since a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocol.values.metadata import Segment
from penstock.state import state_sizes
from penstock.state.backend import StoredState
from penstock.state.chains import Chain
from penstock.state.changes import ChangeLog, KeyChanges, Since
from penstock.state.columnar.changed_entries import Removed

NAME = ("op", "number")


def stored_whole(changes: KeyChanges[dict[Any, Any]], checkpoint_id: int) -> Chain:
    run = StoredState(*NAME, 1, Segment(f"segment-{checkpoint_id}", 100), 0, 100, 0)
    chain = changes.new_chain(checkpoint_id, (run,), checkpoint_id)
    changes.note_stored(checkpoint_id, {NAME: chain})
    return chain


def changed_in(changes: KeyChanges[dict[Any, Any]], since: Since) -> set[Any] | None:
    keys = changes.keys_since(NAME, since)
    return None if keys is None else set(keys.changed())


def test_keys_are_those_of_all_times_since_the_named_checkpoint() -> None:
    changes = KeyChanges[dict[Any, Any]](dict)
    changes.cut(1, None)
    stored_whole(changes, 1)
    for number, key in enumerate("abc", 2):
        changes.keys_now(NAME)[key] = True
        since = changes.cut(number, 1)
        assert changed_in(changes, since[NAME]) == set("abc"[: number - 1])


def test_a_checkpoint_that_is_stored_after_a_later_one_may_be_named() -> None:
    """Without this: uploads end in any order, and once a later one was stored the keys before it were forgotten, so the
    next checkpoint stored everything although its predecessor was known."""
    changes = KeyChanges[dict[Any, Any]](dict)
    changes.cut(1, None)
    changes.keys_now(NAME)["b"] = True
    changes.cut(2, None)
    stored_whole(changes, 2)
    changes.keys_now(NAME)["c"] = True
    changes.cut(3, None)
    chain = stored_whole(changes, 1)
    changes.keys_now(NAME)["d"] = True
    since = changes.cut(4, 1)
    assert since[NAME].chain == chain and changed_in(changes, since[NAME]) == {"b", "c", "d"}


def test_too_many_keys_are_given_up_until_the_next_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", 3)
    changes = KeyChanges[dict[Any, Any]](dict)
    changes.cut(1, None)
    stored_whole(changes, 1)
    changes.keys_now(NAME).update(dict.fromkeys("abcd", True))
    changes.limit()
    assert not changes.keys_now(NAME)
    assert changed_in(changes, changes.cut(2, 1)[NAME]) is None
    stored_whole(changes, 2)
    changes.keys_now(NAME)["e"] = True
    assert changed_in(changes, changes.cut(3, 2)[NAME]) == {"e"}


def test_a_log_knows_what_it_has_forgotten() -> None:
    log = ChangeLog[Removed]()
    log.parts += [Removed(number, [], None) for number in (1, 2, 3)]  # type: ignore[arg-type]
    log.forget(1)
    assert log.since(0) is None
    assert [part.number for part in log.since(1) or []] == [2, 3]
    assert log.since(3) == []
