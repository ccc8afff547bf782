"""Tests section 11 of `PROTOCOL.md`: a log that is shortened while drivers sleep, race and die."""

from __future__ import annotations

import pytest

from penstock.protocol.log import job_log
from penstock.protocol.log.log_operations import ListLog, ReadEntry, ReadMetadata
from penstock.protocol.log.publication import Fenced, LogRefused, NotPublished, OutcomeUnknown, Publication
from tests.unit.protocol.log.log_store import Conversing, LogStore, new, owner, path_of, run


def long_log(store: LogStore, publication: Publication, count: int) -> None:
    """Publishes that many checkpoints, and deletes what may be deleted."""
    for checkpoint_id in range(publication.newest_id + 1, publication.newest_id + count + 1):
        published = run(publication.publish(new(store, checkpoint_id, publication.incarnation)), store)
        store.delete(published.deletable)
        store.shorten(published.shortened)


def test_a_log_keeps_its_last_entries_only() -> None:
    store = LogStore()
    long_log(store, owner(store), 100)
    assert sorted(store.entries) == list(range(101 - job_log.ENTRIES_KEPT, 101))
    assert sorted(store.metadata) == [path_of(100)]


def test_a_shortened_log_is_taken_over_and_continued() -> None:
    store = LogStore()
    long_log(store, owner(store), 100)
    successor = Publication("b", 1)
    taken = run(successor.take_over(resume=True), store)
    assert taken.fence == 101 and taken.newest.checkpoint_id == 100 and taken.next_checkpoint_id == 101
    long_log(store, successor, 1)
    assert store.entries[102].base == 102 - job_log.ENTRIES_KEPT + 1


def test_a_paused_driver_that_finds_its_position_deleted_has_lost_the_job() -> None:
    """Create-if-absent of the position that it wants succeeds: the successor's fence there was deleted."""
    store = LogStore()
    paused = owner(store)
    long_log(store, paused, 3)
    long_log(store, owner(store, "b", resume=True), 20)
    assert 4 not in store.entries
    with pytest.raises(Fenced):
        run(paused.publish(new(store, 50, "a")), store)
    assert store.entries[4].incarnation == "a", "what it has created counts for nobody"
    taken = run(Publication("c", 1).take_over(resume=True), store)
    assert taken.newest.incarnation == "b"


def test_a_driver_that_is_fenced_while_it_starts_stops_where_an_entry_is_gone() -> None:
    """It waited half a minute for the deleted entry, and then called the log damaged."""
    store = LogStore()
    long_log(store, owner(store), 3)
    starting = Conversing(Publication("b", 1).take_over(resume=True))
    while 4 not in store.entries or not isinstance(starting.operation, ReadEntry):
        starting.step(store)
    long_log(store, owner(store, "c", resume=True), 20)
    assert starting.operation.sequence not in store.entries
    operations = 0
    while not starting.is_done:
        starting.step(store)
        operations += 1
    assert isinstance(starting.error, Fenced) and operations <= 4


def test_a_driver_that_is_fenced_while_it_reads_the_newest_checkpoint_does_not_call_it_damaged() -> None:
    """Its successor had published another one, and deleted it."""
    store = LogStore()
    long_log(store, owner(store), 3)
    starting = Conversing(Publication("b", 1).take_over(resume=True))
    while not isinstance(starting.operation, ReadMetadata):
        starting.step(store)
    newest = starting.operation.path
    long_log(store, owner(store, "c", resume=True), 20)
    store.delete((newest,))
    while not starting.is_done:
        starting.step(store)
    assert isinstance(starting.error, Fenced), starting.error


def test_a_paused_driver_asks_whether_the_log_is_ours_after_it_was_shortened() -> None:
    store = LogStore()
    paused = owner(store)
    long_log(store, owner(store, "b", resume=True), 20)
    with pytest.raises(Fenced):
        run(paused.check_ours(), store)


def test_a_takeover_from_an_old_listing_puts_its_fence_above_the_log() -> None:
    store = LogStore()
    running = owner(store)
    long_log(store, running, 3)
    resuming = Conversing(Publication("b", 1).take_over(resume=True))
    resuming.step(store)  # lists positions 0 to 3
    resuming.step(store)  # reads position 3
    long_log(store, running, 20)
    while not resuming.is_done:
        resuming.step(store)
    assert resuming.error is None and resuming.result.fence == 24
    assert resuming.result.newest.checkpoint_id == 23


def test_a_takeover_lists_again_when_the_newest_entry_was_deleted_meanwhile() -> None:
    store = LogStore()
    running = owner(store)
    long_log(store, running, 3)
    resuming = Conversing(Publication("b", 1).take_over(resume=True))
    resuming.step(store)
    long_log(store, running, 20)
    while not resuming.is_done:
        resuming.step(store)
    assert resuming.error is None and resuming.result.fence == 24


def test_a_fresh_start_that_finds_its_first_position_deleted_is_refused() -> None:
    store = LogStore()
    fresh = Conversing(Publication("a", 1).take_over(resume=False))
    fresh.step(store)
    long_log(store, owner(store, "b"), 20)
    while not fresh.is_done:
        fresh.step(store)
    assert isinstance(fresh.error, LogRefused)


def test_what_a_killed_driver_did_not_delete_is_deleted_by_the_next() -> None:
    store = LogStore()
    killed = owner(store)
    for checkpoint_id in range(1, 21):
        run(killed.publish(new(store, checkpoint_id)), store)
    assert len(store.entries) == 21
    long_log(store, owner(store, "b", resume=True), 1)
    assert len(store.entries) == job_log.ENTRIES_KEPT


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    store = LogStore()
    publication = owner(store)
    long_log(store, publication, 20)
    before = dict(store.entries)
    assert isinstance(run(publication.publish(new(store, 21)), store, "", "full"), NotPublished)
    assert store.entries == before
    long_log(store, publication, 1)


def test_an_entry_that_the_listing_does_not_show_is_never_believed() -> None:
    store = LogStore()
    publication = owner(store)
    talk = Conversing(publication.publish(new(store, 1)))
    while not talk.is_done:
        if isinstance(talk.operation, ListLog):
            talk.advance([0])
        else:
            talk.step(store)
    assert isinstance(talk.error, OutcomeUnknown) and "end of the job's log" in str(talk.error)
