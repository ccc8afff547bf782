"""Rules of the thread that writes state while the stream changes it are broken one at a time, and are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.checkpoint.snapshot_writer import SnapshotWriter
from penstock.state.columnar.slot_log import SlotLog
from penstock.state.columnar.table_view import TableView
from penstock.state.heap import tables
from penstock.state.heap.tables import KeptEntries
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("8.1")
def columns_change_without_a_log(patch: Patch) -> None:
    patch(SlotLog, "add", lambda self, slots, arrays: None)


@breaks("8.1")
def logged_slots_count_in_copied_blocks_only(patch: Patch) -> None:
    """Treat a block that is being copied as done: what changes from then on is not logged."""
    before_write = TableView.before_write

    def too_early(self: Any, slots: Any, columns: Any, *, with_keys: bool) -> None:
        end = self._copied_end
        self._copied_end = end + (end > 0) * (1 << self._block_bits)
        before_write(self, slots, columns, with_keys=with_keys)
        self._copied_end = end

    patch(TableView, "before_write", too_early)


@breaks("8.1")
def the_newest_change_to_a_slot_counts(patch: Patch) -> None:
    """Mark nothing as logged; the log is put in from its oldest entry to its newest."""
    sort = SlotLog.sort

    def newest_last(self: Any) -> None:
        sort(self)
        for parts in self._of_block.values():
            parts.reverse()

    patch(SlotLog, "make_marks", lambda self: None)
    patch(SlotLog, "sort", newest_last)


@breaks("8.1")
def entries_are_not_copied_at_first_touch(patch: Patch) -> None:
    patch(tables.StateTable, "_copy_of", lambda self, key, value, copy_value: value)


@breaks("8.1")
def buckets_are_not_copied_at_first_touch(patch: Patch) -> None:
    def own(self: Any, key_group: int, key: Any) -> None:
        bucket = self.buckets[key_group]
        is_held = any(s.bucket(key_group) is not None for s in self._snapshots)
        if self._copy_value is not None and is_held and key in bucket:
            bucket[key] = self._copy_of(key, bucket[key], self._copy_value)

    patch(tables.StateTable, "own", own)


@breaks("8.1")
def buckets_are_released_before_they_are_written(patch: Patch) -> None:
    bucket = tables.TableSnapshot.bucket

    def taken(self: Any, key_group: int) -> Any:
        found = bucket(self, key_group)
        self.release(key_group)
        return found

    patch(tables.TableSnapshot, "bucket", taken)


@breaks("8.1")
def changed_entries_are_not_kept(patch: Patch) -> None:
    patch(KeptEntries, "waits_for", lambda self, key: False)


@breaks("8.1")
def changed_entries_are_released_when_they_are_read(patch: Patch) -> None:
    """Let the stream change objects that wait to be pickled."""
    read = KeptEntries.read

    def too_early(self: Any, keys: Any, key_groups: Any) -> Any:
        found = read(self, keys, key_groups)
        self.release_all()
        return found

    patch(KeptEntries, "read", too_early)


@breaks("8.1")
def a_range_is_left_out(patch: Patch) -> None:
    encode_next = SnapshotWriter._encode_next

    def forgetful(self: Any, encoding: Any) -> None:
        encode_next(self, encoding)
        if len(encoding.capture.keyed) == 2:
            encoding.capture.keyed.pop()

    patch(SnapshotWriter, "_encode_next", forgetful)


@breaks("8.1")
def a_range_is_written_twice(patch: Patch) -> None:
    encode_next = SnapshotWriter._encode_next

    def twice(self: Any, encoding: Any) -> None:
        encode_next(self, encoding)
        if len(encoding.capture.keyed) == 1:
            encoding.capture.keyed.append(encoding.capture.keyed[0])

    patch(SnapshotWriter, "_encode_next", twice)


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (columns_change_without_a_log, "columns-changed-between-blocks", r"rows lost|too many"),
    (logged_slots_count_in_copied_blocks_only, "columns-changed-between-blocks", r"rows lost|too many"),
    (the_newest_change_to_a_slot_counts, "columns-changed-between-blocks", r"rows lost|too many"),
    (entries_are_not_copied_at_first_touch, "state-changed-between-ranges", r"rows seen, \d+ counted|^final state"),
    (buckets_are_not_copied_at_first_touch, "state-changed-between-ranges", r"rows seen, \d+ counted|^final state"),
    (buckets_are_released_before_they_are_written, "state-changed-between-ranges", r"rows seen, \d+ counted"),
    (changed_entries_are_not_kept, "entries-changed-before-their-changes-are-written", r"rows seen, \d+ counted"),
    (
        entries_are_not_copied_at_first_touch,
        "entries-changed-before-their-changes-are-written",
        r"rows seen, \d+ counted",
    ),
    (changed_entries_are_released_when_they_are_read, "entries-changed-before-their-changes-are-written", r"rows seen"),
    (a_range_is_left_out, "state-changed-between-ranges", r"^final state of .*: \d+ rows"),
    (a_range_is_written_twice, "state-changed-between-ranges", r"the entry of a key was written twice"),
    (a_range_is_written_twice, "columns-changed-between-blocks", r"the entry of a key was written twice"),
]


@pytest.mark.parametrize(
    ("mutant", "schedule", "violation"), MUTANTS, ids=[f"{m.__name__}-{where}" for m, where, _ in MUTANTS]
)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], schedule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(schedule, violation)
