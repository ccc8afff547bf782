"""Tests section 11 of the protocol: each schedule that breaks a log without its rules."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocol.log.log_operations import Conversation
from penstock.protocol.log.publication import (
    CheckpointUnreadable,
    Fenced,
    IdTaken,
    LogRefused,
    NotPublished,
    OutcomeUnknown,
    Publication,
    PublicationState,
    Published,
    Subsumed,
    TakenOver,
)
from penstock.protocol.machine import IllegalEvent
from penstock.protocol.values.log_entries import Ended, Fence
from tests.unit.protocol.log.log_store import Conversing, LogStore, checkpoints, new, owner, path_of, run

# ---- taking over ------------------------------------------------------------------------------------------------


def test_a_fresh_start_fences_an_empty_log() -> None:
    store = LogStore()
    taken = run(Publication("a", 1).take_over(resume=False), store)
    assert taken == TakenOver(0, None, None, None, None, 1)
    assert isinstance(store.entries[0], Fence)


def test_a_fresh_start_into_a_directory_with_a_log_is_refused() -> None:
    store = LogStore()
    owner(store)
    with pytest.raises(LogRefused, match=r"execution\.state-recovery\.path"):
        owner(store, "b")
    assert len(store.entries) == 1, "and leaves no fence"


def test_of_two_fresh_starts_at_once_one_is_refused() -> None:
    store = LogStore()
    first = Conversing(Publication("a", 1).take_over(resume=False))
    first.step(store)
    owner(store, "b")
    while not first.is_done:
        first.step(store)
    assert isinstance(first.error, LogRefused)
    assert [e.incarnation for e in store.entries.values()] == ["b"]


def test_a_store_that_ignores_conditions_is_refused() -> None:
    with pytest.raises(LogRefused, match="create-if-absent"):
        owner(LogStore(ignores_conditions=True))


def test_the_fence_is_first_the_newest_checkpoint_below_it_second() -> None:
    """[A driver reads 'newest is 1', the old one publishes 2, the driver restores 1: both go on from it.]"""
    store = LogStore()
    old = owner(store)
    run(old.publish(new(store, 1)), store)
    successor = Publication("b", 1)
    taking = Conversing(successor.take_over(resume=True))
    taking.step(store)
    run(old.publish(new(store, 2)), store)
    while not taking.is_done:
        taking.step(store)
    assert taking.result.newest.checkpoint_id == 2
    assert taking.result.next_checkpoint_id == 3
    assert successor.newest_id == 2


def test_create_if_absent_of_a_checkpoint_is_no_fence() -> None:
    """[A paused driver publishes 13 after another has restored 12.]"""
    store = LogStore()
    paused = owner(store)
    run(paused.publish(new(store, 12)), store)
    successor = owner(store, "b", resume=True)
    with pytest.raises(Fenced, match="process 11 on host"):
        run(paused.publish(new(store, 13)), store)
    with pytest.raises(Fenced):
        run(paused.publish(new(store, 14)), store)
    with pytest.raises(Fenced):
        run(paused.end("CANCELED", keep=False), store)
    assert isinstance(run(successor.publish(new(store, 14, "b")), store), Published)
    assert checkpoints(store) == [("a", 12), ("b", 14)]


def test_whether_the_log_is_still_ours_can_be_asked() -> None:
    store = LogStore()
    first = owner(store)
    run(first.check_ours(), store)
    run(first.publish(new(store, 1)), store)
    run(first.check_ours(), store)
    second = owner(store, "b", resume=True)
    run(second.check_ours(), store)
    with pytest.raises(Fenced, match="process 11 on host"):
        run(first.check_ours(), store)
    with pytest.raises(Fenced):
        run(first.publish(new(store, 2)), store)


def test_an_id_that_another_driver_has_used_for_its_metadata_is_not_written_over() -> None:
    store = LogStore()
    paused = owner(store)
    successor = owner(store, "b", resume=True)
    assert isinstance(run(successor.publish(new(store, 1, "b")), store), Published)
    outcome = run(paused.publish(new(store, 1, "a")), store)
    assert isinstance(outcome, IdTaken) and "another driver" in outcome.detail
    assert store.metadata[path_of(1)].incarnation == "b"


def test_an_id_that_a_fenced_driver_used_late_is_skipped_and_names_the_next_free_one() -> None:
    store = LogStore()
    paused = owner(store)
    run(paused.publish(new(store, 6, "a")), store)
    successor = Publication("b", 1)
    assert run(successor.take_over(resume=True), store).next_checkpoint_id == 7
    with pytest.raises(Fenced):
        run(paused.publish(new(store, 7, "a")), store)
    assert run(successor.publish(new(store, 7, "b")), store) == IdTaken(
        "chk-7/_metadata exists already, written by another driver", 8
    )
    assert isinstance(run(successor.publish(new(store, 8, "b")), store), Published)


def test_ids_are_above_everything_that_was_ever_written() -> None:
    store = LogStore()
    crashed = owner(store)
    run(crashed.publish(new(store, 4)), store)
    half = Conversing(crashed.publish(new(store, 9)))
    half.step(store)
    taken = run(Publication("b", 1).take_over(resume=True), store)
    assert taken.newest.checkpoint_id == 4 and taken.next_checkpoint_id == 10


def test_a_lost_reply_to_the_fence_costs_nothing() -> None:
    store = LogStore()
    taken = run(Publication("a", 1).take_over(resume=False), store, "", "lost")
    assert taken.fence == 0 and len(store.entries) == 1


def test_metadata_that_is_missing_is_asked_for_again_and_then_named() -> None:
    store = LogStore()
    run(owner(store).publish(new(store, 3)), store)
    taken = Conversing(Publication("b", 1).take_over(resume=True))
    kept = store.metadata.pop(path_of(3))
    for _ in range(6):
        taken.step(store)
    store.metadata[path_of(3)] = kept
    while not taken.is_done:
        taken.step(store)
    assert taken.result.newest.checkpoint_id == 3
    del store.metadata[path_of(3)]
    with pytest.raises(CheckpointUnreadable, match=r"chk-3/_metadata does not exist"):
        owner(store, "c", resume=True)


def test_a_damaged_newest_checkpoint_is_refused_by_name_and_never_skipped() -> None:
    store = LogStore()
    publication = owner(store, retained_max=2)
    run(publication.publish(new(store, 1)), store)
    run(publication.publish(new(store, 2)), store)
    store.damaged[path_of(2)] = "chk-2/_metadata: checksum differs"
    with pytest.raises(CheckpointUnreadable) as failure:
        owner(store, "b", resume=True)
    assert "chk-2/_metadata: checksum differs" in str(failure.value)
    assert "-s <job directory>/chk-1;" in str(failure.value) and "put out again" in str(failure.value)


def test_what_an_ended_job_did_not_keep_is_not_looked_for() -> None:
    store = LogStore()
    publication = owner(store)
    run(publication.publish(new(store, 1)), store)
    store.delete(run(publication.end("CANCELED", keep=False), store).deletable)
    taken = run(Publication("b", 1).take_over(resume=True), store)
    assert taken.newest is None and isinstance(taken.ended, Ended) and taken.next_checkpoint_id == 2


def test_what_an_ended_job_kept_is_restored() -> None:
    store = LogStore()
    publication = owner(store)
    run(publication.publish(new(store, 1)), store)
    assert run(publication.end("CANCELED", keep=True), store).deletable == ()
    taken = run(Publication("b", 1).take_over(resume=True), store)
    assert taken.newest is not None and taken.ended is not None and taken.ended.state == "CANCELED"


def test_where_a_job_without_a_checkpoint_of_its_own_started_from_is_remembered() -> None:
    store = LogStore()
    run(Publication("a", 1).take_over(resume=False, restored_from="/old/chk-5"), store)
    assert run(Publication("b", 1).take_over(resume=True), store).restored_from == "/old/chk-5"


# ---- publishing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lost", "refused"])
def test_the_reply_is_lost_and_the_retry_is_refused(fault: str) -> None:
    """[The winner takes the refusal for a loss, and deletes its own checkpoint.]"""
    store = LogStore()
    publication = owner(store)
    outcome = run(publication.publish(new(store, 1)), store, "", fault)
    assert isinstance(outcome, Published) and outcome.deletable == ()
    assert checkpoints(store) == [("a", 1)]
    assert isinstance(run(publication.publish(new(store, 2)), store), Published)


@pytest.mark.parametrize("fault", ["lost", "refused"])
def test_a_lost_reply_to_the_metadata(fault: str) -> None:
    store = LogStore()
    assert isinstance(run(owner(store).publish(new(store, 1)), store, fault), Published)


def test_metadata_that_cannot_be_written_means_not_published_and_the_next_may_go() -> None:
    store = LogStore()
    publication = owner(store)
    outcome = run(publication.publish(new(store, 1)), store, "refused", "refused")
    assert isinstance(outcome, NotPublished) and path_of(1) in outcome.detail
    assert checkpoints(store) == []
    assert isinstance(run(publication.publish(new(store, 2)), store), Published)


def test_a_log_on_a_full_disk_fails_the_checkpoint_at_once_and_not_the_job() -> None:
    """[The job waits half a minute for its log, and then ends.]"""
    store = LogStore()
    publication = owner(store)
    outcome = run(publication.publish(new(store, 1)), store, "", "full")
    assert isinstance(outcome, NotPublished) and "the disk is full" in outcome.detail
    assert isinstance(run(publication.publish(new(store, 2)), store), Published)
    assert checkpoints(store) == [("a", 2)]


def test_a_refusal_after_an_attempt_of_unknown_outcome_proves_nothing() -> None:
    """[The first attempt is carried out late: the checkpoint was taken for failed, and is canonical.]"""
    store = LogStore()
    publication = owner(store)
    publishing = Conversing(publication.publish(new(store, 1)))
    publishing.step(store)
    publishing.step(store, "late")
    publishing.step(store)
    publishing.step(store, "full")
    store.apply_late()
    while not publishing.is_done:
        publishing.step(store)
    assert isinstance(publishing.result, Published) and checkpoints(store) == [("a", 1)]


def test_a_fence_waits_for_room_on_a_full_disk() -> None:
    store = LogStore()
    publication = Publication("a", 1)
    taking = Conversing(publication.take_over(resume=False))
    for _ in range(6):
        taking.step(store, "full")
    while not taking.is_done:
        taking.step(store)
    assert taking.error is None and len(store.entries) == 1


def test_unknown_is_asked_again_and_never_taken_for_an_answer() -> None:
    store = LogStore()
    publication = owner(store)
    with pytest.raises(OutcomeUnknown, match="Everything was kept"):
        run(publication.publish(new(store, 1)), store, "", *["refused"] * 1000)
    assert path_of(1) in store.metadata


def test_an_attempt_that_is_applied_late_finds_its_position_taken() -> None:
    store = LogStore()
    old = owner(store)
    attempt = Conversing(old.publish(new(store, 1)))
    attempt.step(store)
    attempt.step(store, "late")
    successor = owner(store, "b", resume=True)
    store.apply_late()
    while not attempt.is_done:
        attempt.step(store)
    assert isinstance(attempt.error, Fenced)
    assert checkpoints(store) == [] and successor.newest_id == 0
    assert path_of(1) in store.metadata, "the loser deletes nothing"


def test_an_id_below_the_newest_is_subsumed() -> None:
    store = LogStore()
    publication = owner(store)
    run(publication.publish(new(store, 5)), store)
    assert run(publication.publish(new(store, 4)), store) == Subsumed()
    assert checkpoints(store) == [("a", 5)]


def test_retained_and_deletable() -> None:
    store = LogStore()
    publication = owner(store, retained_max=2)
    outcomes = [
        run(publication.publish(new(store, 1, "a", "s1")), store),
        run(publication.publish(new(store, 2, "a", "s1", "s2")), store),
        run(publication.publish(new(store, 3, "a", "s2", "s3")), store),
        run(publication.publish(new(store, 4, "a", "s4")), store),
    ]
    assert [o.deletable for o in outcomes] == [(), (), (path_of(1),), (path_of(2), "s1")]
    assert outcomes[3].entry.retained == [path_of(3), path_of(4)]
    successor = Publication("b", 2)
    run(successor.take_over(resume=True), store)
    assert [r.segments for r in successor.retention.retained] == [frozenset({"s2", "s3"}), frozenset({"s4"})]
    assert run(successor.end("CANCELED", keep=False), store).deletable == (path_of(3), path_of(4), "s2", "s3", "s4")


def test_an_older_retained_checkpoint_that_is_damaged_costs_only_its_segments_name() -> None:
    store = LogStore()
    publication = owner(store, retained_max=2)
    run(publication.publish(new(store, 1, "a", "s1")), store)
    run(publication.publish(new(store, 2, "a", "s1", "s2")), store)
    store.damaged[path_of(1)] = "cut short"
    successor = Publication("b", 2)
    run(successor.take_over(resume=True), store)
    outcome = run(successor.publish(new(store, 3, "b", "s3")), store)
    assert outcome.deletable == (path_of(1),), "what it named is unknown, the sweep finds it"


def test_the_final_checkpoint_says_so() -> None:
    store = LogStore()
    run(owner(store).publish(new(store, 1, is_final=True)), store)
    taken = run(Publication("b", 1).take_over(resume=True), store)
    assert taken.newest.is_final


# ---- states ---------------------------------------------------------------------------------------------------------


def test_a_publication_is_ours_between_two_conversations() -> None:
    store = LogStore()
    publication = Publication("a", 1)

    def states_of(conversation: Conversation[Any]) -> list[str]:
        states = [publication.state]
        talk = Conversing(conversation)
        states.append(publication.state)
        while not talk.is_done:
            talk.step(store)
            states.append(publication.state)
        return list(dict.fromkeys(state.value for state in states)) + [publication.state.value]

    assert states_of(publication.take_over(resume=False)) == ["new", "taking over", "owner", "owner"]
    assert states_of(publication.publish(new(store, 1))) == ["owner", "writing metadata", "appending", "owner"]
    assert states_of(publication.publish(new(store, 1))) == ["owner", "owner"], "subsumed"
    assert states_of(publication.check_ours()) == ["owner", "owner"]
    assert states_of(publication.end("FINISHED", keep=True)) == ["owner", "ending", "ended", "ended"]


def test_a_refused_write_leaves_the_log_ours() -> None:
    store = LogStore()
    publication = owner(store)
    assert isinstance(run(publication.publish(new(store, 1)), store, "refused", "refused"), NotPublished)
    assert publication.state is PublicationState.OWNER
    assert isinstance(run(publication.publish(new(store, 2)), store, "", "full"), NotPublished)
    assert publication.state is PublicationState.OWNER


def test_what_is_lost_stays_lost_and_says_why_again() -> None:
    """An entry of unknown outcome may be in the log, so nothing may follow it from this driver."""
    store = LogStore()
    publication = owner(store)
    with pytest.raises(OutcomeUnknown) as first:
        run(publication.publish(new(store, 1)), store, "", *["refused"] * 1000)
    assert publication.state is PublicationState.LOST
    entries = dict(store.entries)
    for conversation in (
        publication.publish(new(store, 2)),
        publication.check_ours(),
        publication.end("FAILED", keep=False),
    ):
        with pytest.raises(OutcomeUnknown) as again:
            run(conversation, store)
        assert again.value is first.value
    assert store.entries == entries


def test_a_conversation_that_cannot_come_names_machine_state_and_event() -> None:
    store = LogStore()
    with pytest.raises(IllegalEvent, match="the publication is new, and the event 'publish' cannot come then"):
        run(Publication("a", 1).publish(new(store, 1)), store)
    publication = owner(store)
    publishing = Conversing(publication.publish(new(store, 1)))
    publishing.step(store)
    with pytest.raises(IllegalEvent, match="the publication is appending, and the event 'end'"):
        run(publication.end("FINISHED", keep=True), store)
    with pytest.raises(IllegalEvent, match="the publication is appending, and the event 'take over'"):
        run(publication.take_over(resume=True), store)
