"""The simulation finds what it is there for: rules of the protocol are broken one at a time, and it has to notice.

Each mutant is tried on the schedule that its rule was written for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.jobmaster import checkpoints, generations, job_directory, job_recovery
from penstock.protocol.channel import captured, credit_pool
from penstock.protocol.channel import ends as channel
from penstock.protocol.log import job_log, publication, retention
from penstock.protocol.subtask import barrier_handler
from penstock.protocol.values import reasons
from penstock.protocol.values.log_entries import Fence
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint import subtask_checkpoints
from penstock.runtime.subtask import column_work, snapshot_source, subtask_opening
from penstock.state.heap import tables
from penstock.storage import segments
from simulation.checkers import content_checker
from simulation.world import faulty_store as simulated_store
from tests.simulation.finding import READ_DAMAGED, assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("1.2")
def windows_close_at_the_arrival_of_the_barrier(patch: Patch) -> None:
    limit, open_window = channel.InputChannel.limit_window, channel.InputChannel.open_window

    def limited(self: Any, checkpoint_id: int, until: int) -> bool:
        return limit(self, checkpoint_id, min(until, max(self.received, self.windows[checkpoint_id].start)))

    def opened(self: Any, checkpoint_id: int, until: int | None) -> bool:
        return open_window(self, checkpoint_id, None if until is None else min(until, max(self.received, self.applied)))

    patch(channel.InputChannel, "limit_window", limited)
    patch(channel.InputChannel, "open_window", opened)


@breaks("2.6")
def blocked_channels_are_read(patch: Patch) -> None:
    patch(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)


@breaks("2.2")
def what_a_turned_barrier_passes_is_not_stored(patch: Patch) -> None:
    turn = channel.OutputChannel._turn
    patch(
        channel.OutputChannel, "_turn", lambda self, barrier: turn(self, barrier)._replace(captured=captured.Captured())
    )


@breaks("1.4")
def coverage_is_not_checked_before_publication(patch: Patch) -> None:
    """Publish without a check; nor are the rows stored that a turned barrier passes: only the simulation's own count is
    left to notice."""
    what_a_turned_barrier_passes_is_not_stored(patch)
    patch(checkpoints, "verify", lambda *arguments: [])


@breaks("4.1")
def credit_is_never_granted(patch: Patch) -> None:
    patch(channel.InputChannel, "credit_due", lambda self: None)
    patch(credit_pool.CreditPool, "granted", lambda self: ())


@breaks("3.1")
def unread_layers_are_not_in_the_snapshot(patch: Patch) -> None:
    patch(subtask_checkpoints.SubtaskCheckpoints, "_unread_layers", lambda self: [])


@breaks("7.1")
def snapshots_lie_inside_a_row(patch: Patch) -> None:
    patch(snapshot_source.SnapshotSource, "finish_row", lambda self: True)


@breaks("2.3a")
def a_declined_checkpoint_is_declined_again(patch: Patch) -> None:
    handler = barrier_handler.BarrierHandler
    reason = "again"
    patch(handler, "on_cancel", lambda self, channel, checkpoint_id: self._decline(checkpoint_id, reason))


@breaks("11.1a")
def a_driver_that_lost_a_position_takes_the_next(patch: Patch) -> None:
    def append_next(self: Any, entry: Any, gives_up: bool = False) -> Any:
        while (yield from self._append(entry)) is not None:
            self.next_sequence += 1
            entry = msgspec.structs.replace(entry, sequence=self.next_sequence)
        self.next_sequence += 1
        self.base = entry.base

    patch(job_log.JobLog, "append_next", append_next)


@breaks("11.5a")
def entries_at_deleted_positions_count(patch: Patch) -> None:
    """Create-if-absent is believed, as if no position were ever deleted."""
    counts = job_log.JobLog._counts

    def believed(self: Any, entry: Any) -> Any:
        yield from counts(self, entry)
        self._lost_by = None
        return True

    patch(job_log.JobLog, "_counts", believed)


@breaks("11.5b")
def fences_at_deleted_positions_count(patch: Patch) -> None:
    counts = job_log.JobLog._counts

    def believed(self: Any, entry: Any) -> Any:
        is_counted = yield from counts(self, entry)
        if isinstance(entry, Fence):
            self._lost_by = None
            return True
        return is_counted

    patch(job_log.JobLog, "_counts", believed)
    patch(publication.Publication, "takeover", None)  # the message of a lost log would hide it


@breaks("11.3a")
def a_fence_forgets_the_base(patch: Patch) -> None:
    append_fence = job_log.JobLog._append_fence

    def from_zero(self: Any, fence_at: Any, newest: Any, resume: bool) -> Any:
        return append_fence(self, lambda sequence, _, claimed: fence_at(sequence, 0, claimed), newest, resume)

    patch(job_log.JobLog, "_append_fence", from_zero)


@breaks("11.4")
def the_log_is_deleted_beyond_its_base(patch: Patch) -> None:
    counts = job_log.JobLog._counts

    def all_below(self: Any, entry: Any) -> Any:
        is_counted = yield from counts(self, entry)
        self.below_base = (*self.below_base, entry.sequence - 1)
        return is_counted

    patch(job_log.JobLog, "_counts", all_below)


@breaks("11.3b")
def the_base_lies_above_the_newest_checkpoint(patch: Patch) -> None:
    patch(job_log.JobLog, "base_after", lambda self, sequence: sequence + 1)


@breaks("11.8")
def what_others_left_below_the_base_stays(patch: Patch) -> None:
    counts = job_log.JobLog._counts

    def own_only(self: Any, entry: Any) -> Any:
        is_counted = yield from counts(self, entry)
        self.below_base = tuple(p for p in self.below_base if p >= self.base)
        return is_counted

    patch(job_log.JobLog, "_counts", own_only)


@breaks("11.9")
def a_taken_id_is_a_failure(patch: Patch) -> None:
    patch(reasons, "_COUNTED", reasons._COUNTED | {FailureReason.ID_TAKEN})


@breaks("11.10b")
def commits_come_before_the_log_entry(patch: Patch) -> None:
    publish = checkpoints.Checkpoints.publish

    def early(self: Any, effect: Any) -> None:
        self._commits.add([c for ack in effect.acks for s in ack.subtasks for c in s.committables])
        publish(self, effect)

    patch(checkpoints.Checkpoints, "publish", early)


@breaks("11.10a")
def recovery_commits_nothing(patch: Patch) -> None:
    patch(job_recovery, "committables_of", lambda metadata: [])


@breaks("10.1")
def enumerators_are_snapshotted_too_early(patch: Patch) -> None:
    snapshot = generations.SplitDistribution.snapshot

    def stale(self: Any) -> Any:
        before = getattr(self, "before", None)
        self.before = snapshot(self)
        return before or self.before

    patch(generations.SplitDistribution, "snapshot", stale)


@breaks("8.1")
def the_writer_sees_state_that_changes(patch: Patch) -> None:
    """Copy nothing at its first touch."""
    snapshot = tables.StateTable.snapshot

    def shared_with_the_stream(self: Any) -> Any:
        taken = snapshot(self)
        self.copied.clear()
        return taken

    patch(tables.StateTable, "snapshot", shared_with_the_stream)


@breaks("11.11b")
def nothing_is_swept_at_the_end(patch: Patch) -> None:
    patch(job_directory.JobDirectory, "sweep_at_end", lambda self, swept: self._after_all_work(swept))


@breaks("11.11b")
def one_failed_deletion_ends_them_all(patch: Patch) -> None:
    def delete_each(delete: Callable[[str], None], paths: Any) -> None:
        for path in paths:
            delete(path)

    patch(simulated_store, "delete_each", delete_each)


@breaks("11.11a")
def a_sweep_deletes_by_generation_alone(patch: Patch) -> None:
    deletable = retention.Sweep.deletable

    def blind(self: Any, found: Any, named: Any) -> Any:
        return deletable(self, found, frozenset(path for path in named if "shared/" not in path))

    patch(retention.Sweep, "deletable", blind)


@breaks("3.6a")
def checksums_are_not_compared(patch: Patch) -> None:
    """Every sum of a range is what was written, and what is read has it."""
    patch(segments, "zlib", SimpleNamespace(crc32=lambda data, value=0: 0))
    patch(content_checker, "zlib", SimpleNamespace(crc32=lambda data, value=0: 0))


@breaks("11.11b")
def unpublished_metadata_is_not_looked_for(patch: Patch) -> None:
    patch(retention.Sweep, "must_read", lambda self, found: False)


@breaks("5.6")
def rows_held_for_a_batch_are_in_no_snapshot(patch: Patch) -> None:
    patch(column_work.ColumnWork, "finish_row", lambda self: True)


@breaks("5.6")
def watermarks_pass_rows_held_for_a_batch(patch: Patch) -> None:
    patch(subtask_opening, "_emit_behind_rows", lambda work, output, event: output.emit_event(event))


MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (
        windows_close_at_the_arrival_of_the_barrier,
        "barrier-overtakes-handed-rows",
        r"in-flight data is incomplete: .* were not stored",
    ),
    (
        blocked_channels_are_read,
        "rows-behind-an-aligned-barrier",
        r"in-flight data is incomplete: .* elements applied, but only \d+ emitted",
    ),
    (
        what_a_turned_barrier_passes_is_not_stored,
        "barriers-turn-at-both-ends",
        r"in-flight data is incomplete: .* were not stored",
    ),
    (
        coverage_is_not_checked_before_publication,
        "barriers-turn-at-both-ends",
        r"channel .*: the cut lacks elements",
    ),
    (
        credit_is_never_granted,
        "frames-larger-than-their-credit",
        r"^no end after",
    ),
    (
        unread_layers_are_not_in_the_snapshot,
        "checkpoint-before-recovered-data-is-read",
        r"^final state of .*: \d+ rows|[1-9]\d* rows lost",
    ),
    (
        snapshots_lie_inside_a_row,
        "barrier-waits-for-a-generator",
        r"^final state of .*: \d+ rows|too many",
    ),
    (
        a_declined_checkpoint_is_declined_again,
        "cancel-overtakes-aligned-barriers",
        r"declined twice",
    ),
    (
        a_driver_that_lost_a_position_takes_the_next,
        "paused-driver-publishes-late",
        r"is by \w+, but \w+ has put its fence",
    ),
    (
        entries_at_deleted_positions_count,
        "driver-paused-across-a-shortening",
        r"is committed, but no checkpoint in the log says so|may name what \d+ has, which is not in the log",
    ),
    (
        fences_at_deleted_positions_count,
        "takeover-while-the-log-is-shortened",
        # Its fence stands where another was deleted, so it does not know that it lost the job.
        r"was fenced, and says something else: (entry \d+ of the job's log|the checkpoint storage let an object)",
    ),
    (
        a_fence_forgets_the_base,
        "takeover-while-the-log-is-shortened",
        r"the base of the log falls",
    ),
    (
        the_log_is_deleted_beyond_its_base,
        "shortening-on-a-full-disk",
        r"is deleted, but the log counts from",
    ),
    (
        the_base_lies_above_the_newest_checkpoint,
        "driver-killed-before-it-deletes",
        r"the log counts from \d+, but its newest checkpoint stands at",
    ),
    (
        what_others_left_below_the_base_stays,
        "driver-killed-before-it-deletes",
        r"lies below the log's base",
    ),
    (
        a_taken_id_is_a_failure,
        "fenced-driver-has-used-the-next-id",
        r"and nothing has failed",
    ),
    (
        commits_come_before_the_log_entry,
        "driver-killed-before-commit",
        r"is committed, but no checkpoint in the log says so",
    ),
    (
        recovery_commits_nothing,
        "driver-killed-before-commit",
        r"[1-9]\d* rows lost",
    ),
    (
        enumerators_are_snapshotted_too_early,
        "split-between-enumerator-and-reader",
        r"^final state of .*: \d+ rows|too many|comes twice to one function object",
    ),
    (
        the_writer_sees_state_that_changes,
        "state-changed-behind-the-barrier",
        r"^final state of .*: \d+ rows",
    ),
    (
        rows_held_for_a_batch_are_in_no_snapshot,
        "rows-held-for-a-batch",
        r"[1-9]\d* rows lost",
    ),
    (
        watermarks_pass_rows_held_for_a_batch,
        "rows-held-for-a-batch",
        r"is late|[1-9]\d* rows lost",
    ),
    (
        nothing_is_swept_at_the_end,
        "job-ends-before-the-next-sweep",
        r"orphan after the sweep: shared/",
    ),
    (
        one_failed_deletion_ends_them_all,
        "one-object-cannot-be-deleted",
        r"could not be deleted, and these were not",
    ),
    (
        a_sweep_deletes_by_generation_alone,
        "failure-after-the-sweep",
        r"shared/.* is deleted, but a checkpoint that is retained needs it",
    ),
    (
        checksums_are_not_compared,
        "any-bit-flips",
        READ_DAMAGED,
    ),
    (
        unpublished_metadata_is_not_looked_for,
        "fenced-driver-leaves-metadata",
        r"orphan after the sweep: chk-\d+/_metadata",
    ),
]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=[m.__name__ for m, _, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
