"""Tests which objects of a job live: by the names in what is retained, and by nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.log.retention import (
    Found,
    FoundMetadata,
    FoundSegment,
    Retained,
    Retention,
    Sweep,
    SweepSchedule,
    named_by,
)
from penstock.protocol.values.elements import Generation

OLD, RUNNING, YOUNGER = Generation(2, 1), Generation(2, 2), Generation(2, 3)


def retained(checkpoint_id: int, *segments: str) -> Retained:
    return Retained(checkpoint_id, path(checkpoint_id), frozenset(segments))


def path(checkpoint_id: int) -> str:
    return f"chk-{checkpoint_id}/_metadata"


# ---- retained checkpoints -------------------------------------------------------------------------------------------


def test_what_only_the_dropped_checkpoint_names_is_deleted() -> None:
    retention = Retention(2)
    for checkpoint in (retained(1, "a"), retained(2, "a", "b")):
        assert retention.replace(retention.with_newest(checkpoint)) == ()
    assert retention.replace(retention.with_newest(retained(3, "b", "c"))) == (path(1),), "2 still names a"
    assert retention.named == frozenset({path(2), path(3), "a", "b", "c"})
    assert retention.replace(retention.with_newest(retained(4, "d"))) == (path(2), "a")
    assert retention.replace([]) == (path(3), path(4), "b", "c", "d"), "the end of a job that keeps nothing"


def test_while_a_retained_checkpoint_cannot_be_read_no_segment_is_deleted() -> None:
    retention = Retention(2)
    unknown = Retained(-1, path(2), None)
    retention.retained = [retained(1, "a"), unknown]
    assert retention.replace([unknown, retained(3)]) == (path(1),)
    assert retention.named is None
    sweep = Sweep(RUNNING, 3)
    assert sweep.deletable([FoundSegment("a", OLD)], retention.named) == []
    assert retention.replace([retained(3), retained(4)]) == (path(2), "a")
    assert sweep.deletable([FoundSegment("a", OLD)], retention.named) == ["a"], "after a crash, the sweep finds it"


def test_at_least_one_checkpoint_is_retained() -> None:
    retention = Retention(0)
    retention.replace(retention.with_newest(retained(1, "a")))
    assert retention.named == frozenset({path(1), "a"})


def test_a_claimed_checkpoint_goes_when_enough_own_ones_are_retained() -> None:
    retention = Retention(2)
    retention.claim("/old/chk-9")
    retention.replace(retention.with_newest(retained(1)))
    assert retention.take_subsumed_claim() is None, "it is the older one of two"
    retention.replace(retention.with_newest(retained(2)))
    assert retention.take_subsumed_claim() == "/old/chk-9"
    assert retention.take_subsumed_claim() is None, "once"
    assert retention.claimed == "/old/chk-9", "it is the job's own until it is known to be gone"
    retention.release_claim()
    assert retention.claimed is None


def test_a_claimed_checkpoint_goes_with_the_own_ones_at_the_end() -> None:
    retention = Retention(3)
    retention.claim("/old/chk-9")
    assert retention.take_claim_at_end(has_checkpoints=False) is None, "it is all that there is"
    retention.replace(retention.with_newest(retained(1)))
    assert retention.take_claim_at_end(has_checkpoints=True) is None, "it is one of those that the job keeps"
    retention.replace([])
    assert retention.take_claim_at_end(has_checkpoints=True) == "/old/chk-9"


def test_a_subsumed_claim_that_a_dead_driver_did_not_delete_goes_at_the_end() -> None:
    """The next driver publishes nothing before the job is cancelled, and keeps its checkpoints."""
    retention = Retention(1)
    retention.claim("/old/chk-9")
    retention.replace([retained(1)])
    assert retention.take_claim_at_end(has_checkpoints=True) == "/old/chk-9"


# ---- the sweep ------------------------------------------------------------------------------------------------------


def test_a_sweep_takes_only_what_a_dead_generation_left_and_nobody_names() -> None:
    found: list[Found] = [
        FoundSegment("of-an-older-driver", Generation(1, 99)),
        FoundSegment("old", OLD),
        FoundSegment("old-and-named", OLD),
        FoundSegment("running", RUNNING),
        FoundSegment("younger", YOUNGER),
        FoundMetadata(path(3), 3),
        FoundMetadata(path(5), 5),
        FoundMetadata(path(6), 6, OLD),
        FoundMetadata(path(7), 7, RUNNING),
        FoundMetadata(path(8), 8),
    ]
    named = frozenset({path(5), "old-and-named"})
    assert Sweep(RUNNING, 5).deletable(found, named) == ["of-an-older-driver", "old", path(3), path(6)]


def test_a_sweep_reads_only_metadata_that_may_be_on_their_way_into_the_log() -> None:
    sweep = Sweep(RUNNING, 5)
    assert [sweep.must_read(FoundMetadata(path(number), number)) for number in (4, 5, 6)] == [False, False, True]


def test_a_job_that_restarts_all_the_time_is_swept_all_the_same() -> None:
    schedule = SweepSchedule(100.0)
    assert schedule.next_deadline_ms() is None and schedule.take_due(0.0) is None
    schedule.plan(OLD, 0.0)
    schedule.plan(RUNNING, 60.0)
    schedule.plan(YOUNGER, 90.0)
    assert schedule.next_deadline_ms() == 100.0 and schedule.take_due(99.0) is None
    assert schedule.take_due(100.0) == OLD
    assert schedule.next_deadline_ms() == 200.0 and schedule.take_due(200.0) == YOUNGER
    assert schedule.next_deadline_ms() is None
    schedule.plan(OLD, 300.0)
    schedule.cancel()
    assert schedule.next_deadline_ms() is None


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sets(st.integers(0, 30)), st.booleans(), st.booleans()), max_size=30),
)
def test_what_is_named_is_never_deleted_and_after_a_sweep_nothing_else_is_left(
    retained_max: int, checkpoints: list[tuple[set[int], bool, bool]]
) -> None:
    """Each checkpoint names a new segment and some that are still there. Some are never published; sometimes the
    driver is killed before it deletes."""
    retention = Retention(retained_max)
    present: dict[str, Found] = {}
    for number, (shared, is_published, is_killed) in enumerate(checkpoints):
        new = retained(
            number, f"s{number}", *(f"s{other}" for other in shared if f"s{other}" in (retention.named or ()))
        )
        present[new.path] = FoundMetadata(new.path, number, OLD)
        present[f"s{number}"] = FoundSegment(f"s{number}", OLD)
        if is_published:
            deletable = retention.replace(retention.with_newest(new))
            assert not (named_by(retention.retained) or frozenset()) & set(deletable)
            for name in () if is_killed else deletable:
                del present[name]
        assert (retention.named or frozenset()) <= present.keys()
    newest_id = max((checkpoint.checkpoint_id for checkpoint in retention.retained), default=0)
    for name in Sweep(RUNNING, newest_id).deletable(present.values(), retention.named):
        del present[name]
    assert present.keys() == retention.named
