"""Tests that what a pending checkpoint may name stays until it has ended, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.log.retention import Retained, Retention


def retained(checkpoint_id: int, *segments: str) -> Retained:
    return Retained(checkpoint_id, f"chk-{checkpoint_id}/_metadata", frozenset(segments))


def published(retention: Retention, checkpoint: Retained) -> tuple[str, ...]:
    """Do as a driver does: first the entry, then the end of the pending checkpoint."""
    deletable = retention.replace(retention.with_newest(checkpoint))
    return deletable + retention.unpin(checkpoint.checkpoint_id)


def test_what_a_pending_checkpoint_may_name_outlives_its_last_retained_one() -> None:
    retention = Retention(1)
    published(retention, retained(1, "a"))
    assert retention.pin_predecessor(2) == retention.pin_predecessor(3) == retained(1, "a")
    assert published(retention, retained(2, "b")) == ("chk-1/_metadata",), "3 may name a"
    assert retention.named is not None and "a" in retention.named, "so no sweep takes it"
    assert published(retention, retained(3, "a", "c")) == ("chk-2/_metadata", "b")
    assert published(retention, retained(4, "d")) == ("chk-3/_metadata", "a", "c")


def test_what_an_aborted_checkpoint_might_have_named_is_deleted_when_it_has_ended() -> None:
    retention = Retention(1)
    published(retention, retained(1, "a"))
    retention.pin_predecessor(2)
    retention.pin_predecessor(3)
    assert published(retention, retained(2, "b")) == ("chk-1/_metadata",)
    assert retention.unpin(3) == ("a",)
    assert retention.unpin(3) == (), "an end that is reported twice releases nothing"


def test_without_a_checkpoint_that_can_be_read_there_is_no_predecessor() -> None:
    retention = Retention(1)
    assert retention.pin_predecessor(1) is None
    retention.retained = [Retained(-1, "chk-7/_metadata", None)]
    assert retention.pin_predecessor(8) is None and retention.predecessor_of(8) is None
    assert retention.unpin(8) == ()


events = st.lists(st.tuples(st.sampled_from(("trigger", "complete", "abort")), st.randoms(use_true_random=False)))


@given(retained_max=st.integers(1, 3), happened=events)
def test_nothing_that_anybody_needs_is_deleted_and_everything_else_is(
    retained_max: int, happened: list[tuple[str, object]]
) -> None:
    """Each checkpoint writes one segment, and names some of what its predecessor names."""
    retention, newest_id, triggered_id = Retention(retained_max), 0, 0
    pending: dict[int, Retained | None] = {}
    there: set[str] = set()
    for what, random in happened:
        if what == "trigger":
            triggered_id += 1
            pending[triggered_id] = retention.pin_predecessor(triggered_id)
            there.add(str(triggered_id))
        elif pending:
            number = random.choice(sorted(pending))  # type: ignore[attr-defined]
            predecessor = pending.pop(number)
            if what == "complete" and number > newest_id:
                earlier = sorted((predecessor.segments or ()) if predecessor else ())
                named = {x for x in earlier if random.random() < 0.6}  # type: ignore[attr-defined]
                newest_id = number
                there -= set(published(retention, retained(number, str(number), *named)))
            else:
                there -= {str(number), *retention.unpin(number)}
        needed = {x for r in retention.retained for x in r.segments or ()}
        may_be_named = {x for p in pending.values() if p is not None for x in p.segments or ()}
        assert there == needed | may_be_named | set(map(str, pending))
