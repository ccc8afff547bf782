"""The simulation finds broken rules that concern no single part of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.jobmaster import job_directory
from penstock.jobmaster.current_job import JobSettings
from penstock.operators.rows import chain
from penstock.protocol.channel.captured import Captured
from penstock.protocol.channel.ends import OutputChannel, Overtaken
from penstock.protocol.driver.driver_effects import Prepare
from penstock.protocol.driver.lifecycle import Lifecycle
from penstock.protocol.driver.slots import Dismissed, SlotProcesses, SlotRoster, SpareJoined
from penstock.protocol.log.job_log import JobLog
from penstock.protocol.log.publication import Publication
from penstock.protocol.subtask.barrier_handler import BarrierHandler
from penstock.protocol.values.elements import EndOfData
from penstock.protocol.values.frames import AlignedBarrier, Data, Event, UrgentBarrier
from penstock.protocol.values.metadata import Segment
from penstock.runtime.checkpoint.segment_uploads import Upload
from penstock.runtime.process.slot import Slot
from penstock.runtime.subtask.parking import Parking
from penstock.runtime.subtask.snapshot_source import SnapshotSource
from penstock.runtime.subtask.subtask import Subtask
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("1.1")
def events_are_in_no_capture(patch: Patch) -> None:
    add = Captured.add
    patch(Captured, "add", lambda self, e, start, until: None if isinstance(e, Event) else add(self, e, start, until))


@breaks("1.3")
def urgent_barriers_are_handled_a_step_late(patch: Patch) -> None:
    take_mail = Subtask._take_mail
    late: dict[Any, list[Any]] = {}

    def takes_rows_first(self: Any) -> None:
        mail = late.pop(self, [])
        while self.mailbox:
            mail.append(self.mailbox.take())
        channels = {item.channel for item in mail if isinstance(item, Data)}
        held_back = [item for item in mail if isinstance(item, UrgentBarrier) and item.channel in channels]
        for item in mail:
            if item not in held_back:
                self.mailbox.post(item)
        take_mail(self)
        if held_back:
            late[self] = held_back
            self.mailbox.wake()

    patch(Subtask, "_take_mail", takes_rows_first)


@breaks("2.1")
def newer_barriers_pass_older_ones(patch: Patch) -> None:
    """Let them pass at the producer and at the consumer."""
    turn = BarrierHandler._turn

    def overtake(self: Any, barrier: Any) -> list[Overtaken]:
        passed = Captured()
        for element in self.queue:
            if not isinstance(element, AlignedBarrier):
                passed.add(element, self.handed, None)
        self._fixed = self.emitted
        return [Overtaken(barrier, UrgentBarrier(self.id, self.emitted, self.handed, barrier), passed)]

    def turn_alone(self: Any, alignment: Any, now_ms: float) -> Any:
        alignments = self._alignments
        self._alignments = {n: a for n, a in alignments.items() if n >= alignment.barrier.checkpoint_id}
        effects = turn(self, alignment, now_ms)
        self._alignments = alignments
        return effects

    patch(OutputChannel, "overtake", overtake)
    patch(BarrierHandler, "_turn", turn_alone)


@breaks("4.1")
def frames_wait_for_credit_for_all_of_them(patch: Patch) -> None:
    pop = OutputChannel.pop

    def waits(self: Any, now_ms: float, joined_bytes: int = 0) -> Any:
        head = self.queue[0] if self.queue else None
        if isinstance(head, Data) and self.sent_bytes + head.size_bytes > self.limit_bytes:
            return None
        return pop(self, now_ms, joined_bytes)

    patch(OutputChannel, "pop", waits)


@breaks("2.4")
def segments_are_acknowledged_before_they_are_stored(patch: Patch) -> None:
    store = Upload.store

    def hopeful(self: Any) -> None:
        store(self)
        if self.error is not None:
            self.error, self.stored = None, Segment(self.segment._path, self.segment.length_bytes)

    patch(Upload, "store", hopeful)


@breaks("3.8a")
def what_a_job_starts_from_is_claimed(patch: Patch) -> None:
    settings_of = JobSettings.from_configuration
    patch(JobSettings, "from_configuration", lambda *arguments: replace(settings_of(*arguments), claim=True))


@breaks("3.8b")
def a_fence_forgets_what_is_claimed(patch: Patch) -> None:
    append_fence = JobLog._append_fence

    def forgetful(self: Any, fence_at: Any, newest: Any, resume: bool) -> Any:
        return append_fence(self, lambda sequence, base, _: fence_at(sequence, base, None), newest, resume)

    patch(JobLog, "_append_fence", forgetful)


@breaks("3.8c")
def metadata_of_what_is_claimed_go_first(patch: Patch) -> None:
    delete_claimed = job_directory._delete_claimed

    def metadata_first(open_store: Any, claimed: Any) -> None:
        def opened(directory: str, create: bool) -> Any:
            store = open_store(directory, create)
            delete_all = store.delete_all
            store.delete_all = lambda paths: delete_all([claimed.metadata_path, *paths])
            return store

        delete_claimed(opened, claimed)

    patch(job_directory, "_delete_claimed", metadata_first)


@breaks("7.2")
def values_that_can_change_are_not_copied(patch: Patch) -> None:
    patch(chain, "isolation", lambda declared, operator: None)


@breaks("7.3")
def parking_has_no_limit(patch: Patch) -> None:
    begin = Parking.begin

    def for_long(self: Any, now_ms: float) -> None:
        begin(self, now_ms)
        if self._for is not None:
            self.until_ms = now_ms + 10_000.0

    patch(Parking, "begin", for_long)


@breaks("9.1a")
def queues_of_finished_subtasks_are_not_stored(patch: Patch) -> None:
    overtake = OutputChannel.overtake

    def forgetful(self: Any, barrier: Any) -> list[Overtaken]:
        overtaken = overtake(self, barrier)
        last = self.queue[-1] if self.queue else None
        has_finished = isinstance(last, Event) and isinstance(last.event, EndOfData)
        return [o._replace(captured=Captured()) for o in overtaken] if has_finished else overtaken

    patch(OutputChannel, "overtake", forgetful)


@breaks("9.1b")
def finished_sinks_prepare_nothing(patch: Patch) -> None:
    prepare_commit = SnapshotSource.prepare_commit

    def unless_finished(self: Any, checkpoint_id: int, is_stop: bool) -> list[Any]:
        return [] if self.finished else prepare_commit(self, checkpoint_id, is_stop)

    patch(SnapshotSource, "prepare_commit", unless_finished)


@breaks("10.3")
def held_sources_read(patch: Patch) -> None:
    work = Subtask._work

    def reads(self: Any) -> float | None:
        if self.deployed.vertex.is_source and self._draining.held and not self.work.unfinished:
            return self._take_input() if self.output.has_room() else None
        return work(self)

    patch(Subtask, "_work", reads)


@breaks("11.12")
def a_failed_job_keeps_nothing(patch: Patch) -> None:
    end = Publication.end
    patch(Publication, "end", lambda self, state, keep: end(self, state, False))


@breaks("12.1b")
def a_later_attempt_takes_the_place_of_one_that_lives(patch: Patch) -> None:
    register = SlotRoster.register

    def replacing(self: Any, new: Any) -> Any:
        member = self.member(new.slot)
        if member is not None and member.submission == new.submission and new.attempt > member.attempt:
            return [*self.lose(member.process), *register(self, new)]
        return register(self, new)

    patch(SlotRoster, "register", replacing)


@breaks("12.1a")
def a_later_attempt_returns(patch: Patch) -> None:
    register = SlotRoster.register

    def dismissing(self: Any, new: Any) -> Any:
        changes = register(self, new)
        is_copy = any(isinstance(c, SpareJoined) for c in changes) and self.member(new.slot) is not None
        return [*self.lose(new.process), Dismissed(new.process, "it is a copy")] if is_copy else changes

    patch(SlotRoster, "register", dismissing)


@breaks("12.3")
def user_code_that_does_not_return_is_waited_for(patch: Patch) -> None:
    """Let its process and the driver wait."""
    when_left, cancel = Slot._when_left, SlotProcesses.cancel

    def patient(self: Any, done: Any) -> None:
        self._cancellation_timeout_ms = 1e9
        when_left(self, done)

    patch(Slot, "_when_left", patient)
    patch(SlotProcesses, "cancel", lambda self, deadline_ms: cancel(self, deadline_ms + 1e9))


@breaks("12.13")
def what_fails_while_preparing_restarts_at_once(patch: Patch) -> None:
    def at_once(self: Any, now_ms: float) -> list[Any]:
        is_due, self._awaits_preparation = self._awaits_preparation, False
        return [Prepare()] if is_due else []

    patch(Lifecycle, "_prepare_if_due", at_once)


MUTANTS: list[tuple[Callable[[Patch], None], str | list[int], str]] = [
    # (mutant, schedule or seeds, the violation that it must cause)
    (events_are_in_no_capture, "watermark-in-its-place", r"were not stored"),
    (urgent_barriers_are_handled_a_step_late, "rows-behind-an-urgent-barrier", r"ends at \d+ before \d+"),
    (newer_barriers_pass_older_ones, "newer-barrier-turns-older-ones", r"snapshot of \d+ after that of \d+"),
    (frames_wait_for_credit_for_all_of_them, "frames-larger-than-their-credit", r"no end after|nothing will ever"),
    (segments_are_acknowledged_before_they_are_stored, "segment-cannot-be-written", r"is missing"),
    (what_a_job_starts_from_is_claimed, "new-job-from-a-checkpoint", r"changed the directory"),
    (a_fence_forgets_what_is_claimed, "claim-outlives-its-driver", r"which the job owns: nobody deletes it"),
    (metadata_of_what_is_claimed_go_first, "killed-while-it-deletes-what-it-claimed", r"and nobody has deleted them"),
    (values_that_can_change_are_not_copied, "one-list-yielded-again-and-again", r"split \d+ key .* after"),
    (parking_has_no_limit, "parked-with-a-slow-neighbour", r"is parked for"),
    (queues_of_finished_subtasks_are_not_stored, "finished-producer-with-queued-rows", r"were not stored"),
    (finished_sinks_prepare_nothing, "killed-between-end-of-data-and-final-checkpoint", r"[1-9]\d* rows lost"),
    (held_sources_read, "held-sources-get-splits", r"a held source has asked for splits"),
    (a_failed_job_keeps_nothing, "failed-job-is-resumed", r"[1-9]\d* rows lost"),
    (a_later_attempt_returns, "speculative-copies", r"Spark kills the other one"),
    (a_later_attempt_takes_the_place_of_one_that_lives, "speculative-copies", r"restarts after|no end after"),
    (user_code_that_does_not_return_is_waited_for, "slot-hangs-during-a-release", r"no end after|nothing will ever"),
    (
        what_fails_while_preparing_restarts_at_once,
        "storage-is-away-during-a-restart",
        r"failure \d+ comes \d+ ms after the one before, and a restart waits for 300 ms",
    ),
]
_IDS = [f"{mutant.__name__}, {where if isinstance(where, str) else 'seeds'}" for mutant, where, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "where", "violation"), MUTANTS, ids=_IDS)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], where: str | list[int], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(where, violation)
