"""The simulation finds broken rules of savepoints, and of what is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.connectors.kafka.transactional_ids import TransactionalIds
from penstock.jobmaster import checkpoints, job_recovery, savepoints
from penstock.protocol.driver.coordinator import CheckpointCoordinator, Stopping
from penstock.protocol.driver.driver_effects import FailJob
from penstock.protocol.driver.pending_checkpoints import PendingCheckpoints
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.subtask import subtask_machine
from penstock.protocol.values.messages import CheckpointEnded
from penstock.storage.metadata_file import encode_metadata, metadata_crc
from simulation.world.transaction_broker import TransactionBroker
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("9.3a", "12.5a")
def rows_are_taken_behind_a_terminating_snapshot(patch: Patch) -> None:
    held = subtask_machine.SubtaskMachine.is_suspended.fget  # type: ignore[attr-defined]
    asked: dict[int, int] = {}

    def forgets(self: Any) -> bool:
        """Every other time it is asked."""
        asked[id(self)] = asked.get(id(self), 0) + 1
        return bool(held(self)) and asked[id(self)] % 2 == 0

    patch(subtask_machine.SubtaskMachine, "is_suspended", property(forgets))


@breaks("9.3b")
def a_failed_stop_resumes_out_of_its_turn(patch: Patch) -> None:
    decide = subtask_machine.SubtaskMachine._decide

    def at_once(self: Any, event: Any, now_ms: float) -> Any:
        decided = list(decide(self, event, now_ms))
        if isinstance(event, CheckpointEnded):
            resumes = [d for d in decided if isinstance(d, subtask_machine._Resume)]
            for resume in resumes:
                self._one(resume, now_ms)
                decided.remove(resume)
        return decided

    patch(subtask_machine.SubtaskMachine, "_decide", at_once)


@breaks("9.5")
def checkpoints_are_triggered_behind_the_end_of_sources(patch: Patch) -> None:
    patch(Stopping, "is_draining", property(lambda self: False))


@breaks("9.4b")
def a_final_attempt_takes_the_stop_again(patch: Patch) -> None:
    look = CheckpointCoordinator._look_at_the_clock

    def again(self: Any, now_ms: float) -> Any:
        due_ms, stop = self._final_attempts.due_ms, self.stopping.savepoint
        effects = look(self, now_ms)
        is_due = due_ms is not None and due_ms <= now_ms
        return [*effects, *self._request(now_ms, savepoint=stop)] if is_due and stop is not None else effects

    patch(CheckpointCoordinator, "_look_at_the_clock", again)


@breaks("11.21d")
def a_savepoint_is_waited_for_without_a_limit(patch: Patch) -> None:
    trigger = PendingCheckpoints.trigger

    def counts_as_written(self: Any, barrier: Any, *arguments: Any) -> Any:
        effects = trigger(self, barrier, *arguments)
        self.on_written(barrier.checkpoint_id)
        return effects

    patch(PendingCheckpoints, "trigger", counts_as_written)


@breaks("11.13")
def a_savepoint_counts_as_committed(patch: Patch) -> None:
    notify = checkpoints.Checkpoints._notify_slots
    patch(
        checkpoints.Checkpoints,
        "_notify_slots",
        lambda self, checkpoint_id, aborted, commits=True, confirmed=0: notify(self, checkpoint_id, aborted),
    )


@breaks("11.20")
def output_is_confirmed_while_it_is_named(patch: Patch) -> None:
    patch(checkpoints, "confirmed_id", lambda metadata: metadata.checkpoint_id)


@breaks("11.20")
def transactional_ids_are_used_again_at_once(patch: Patch) -> None:
    patch(
        TransactionalIds, "prepared", lambda self, transactional_id, checkpoint_id: self._free.append(transactional_id)
    )


@breaks("11.20")
def transactional_ids_are_used_again_by_the_same_producer(patch: Patch) -> None:
    transactional_ids_are_used_again_at_once(patch)
    start = TransactionBroker.start

    def keeps_its_epoch(self: TransactionBroker, transactional_id: str) -> int:
        known = self._producers.get(transactional_id)
        return start(self, transactional_id) if known is None else known.epoch

    patch(TransactionBroker, "start", keeps_its_epoch)


@breaks("11.14a")
def a_stop_is_not_the_last_checkpoint(patch: Patch) -> None:
    last_checkpoint = savepoints.last_checkpoint

    def goes_on(metadata: Any, directory: str) -> NewCheckpoint:
        last = last_checkpoint(metadata, directory)
        changed = msgspec.structs.replace(last.metadata, is_final=False)
        data = encode_metadata(changed)
        return NewCheckpoint(changed, last.path, data, metadata_crc(data))

    patch(checkpoints, "last_checkpoint", goes_on)


@breaks("11.14b")
def a_stop_is_published_although_the_job_restarts(patch: Patch) -> None:
    patch(PendingCheckpoints, "_is_written_for_a_stop", lambda self, pending: False)


@breaks("11.14c")
def the_next_driver_names_no_savepoint(patch: Patch) -> None:
    queue_commits = job_recovery.JobRecovery.queue_commits

    def silent(self: Any, is_last: bool) -> None:
        point = self._job.restore_point
        self._job.restore_point = replace(point, metadata=msgspec.structs.replace(point.metadata, savepoint=None))
        queue_commits(self, is_last)

    patch(job_recovery.JobRecovery, "queue_commits", silent)


@breaks("11.21b")
def a_failed_savepoint_leaves_what_it_has_written(patch: Patch) -> None:
    patch(savepoints.Savepoints, "_remove", lambda self, directory: None)


@breaks("11.21a")
def savepoints_are_written_where_others_lie(patch: Patch) -> None:
    patch(savepoints.Savepoints, "_make_empty", lambda self, directory: self._open_store(directory, True))


@breaks("11.21c")
def a_failed_savepoint_fails_the_job(patch: Patch) -> None:
    failed = Stopping.on_failed

    def fails(self: Any, savepoint: Any, detail: str, is_running: bool) -> Any:
        return failed(self, savepoint, detail, is_running) or [FailJob(detail)]

    patch(Stopping, "on_failed", fails)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (
        rows_are_taken_behind_a_terminating_snapshot,
        "stop-takes-nothing-behind-its-snapshot",
        r"took \d+ rows behind its last snapshot",
    ),
    (
        checkpoints_are_triggered_behind_the_end_of_sources,
        "drain-fails-behind-the-end-of-its-sources",
        r"[1-9]\d* rows lost|final state of",
    ),
    (
        a_final_attempt_takes_the_stop_again,
        "stop-behind-a-failed-final-checkpoint",
        r"is deleted, but the log says that the job was stopped with that savepoint",
    ),
    (a_savepoint_is_waited_for_without_a_limit, "savepoint-storage-is-silent", r"a savepoint has no limit"),
    (a_savepoint_counts_as_committed, "savepoint-commits-nothing", r"[1-9]\d* rows lost"),
    (output_is_confirmed_while_it_is_named, "driver-killed-before-commit", "confirmed to its writer, but was never"),
    (a_failed_savepoint_leaves_what_it_has_written, "savepoint-directory-fills-up", r"have failed left"),
    (savepoints_are_written_where_others_lie, "savepoint-name-is-taken", r"was written into somebody else's"),
    (a_failed_savepoint_fails_the_job, "savepoint-directory-is-removed", r"has restarted the job"),
    (
        transactional_ids_are_used_again_at_once,
        "transactional-ids-are-used-again",
        r"aborted before its commit: \d+ rows",
    ),
    (
        transactional_ids_are_used_again_by_the_same_producer,
        "transactional-ids-are-used-again",
        r"makes \d+ rows of another transaction visible",
    ),
    (the_next_driver_names_no_savepoint, "next-driver-names-the-savepoint", r"its user knows .* only"),
    (a_stop_is_not_the_last_checkpoint, "driver-dies-behind-the-entry-of-a-stop", r"follows the stop of the job"),
    (a_stop_is_not_the_last_checkpoint, "killed-at-each-step-of-a-stop", r"follows the stop of the job"),
    (a_failed_savepoint_leaves_what_it_has_written, "killed-at-each-step-of-a-stop", r"have failed left"),
    (
        checkpoints_are_triggered_behind_the_end_of_sources,
        "killed-at-each-step-of-a-drain",
        r"[1-9]\d* rows lost|final state of",
    ),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
