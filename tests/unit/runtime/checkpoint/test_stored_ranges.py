"""Tests checkpoints that name what earlier ones have stored: which ranges are worth it, and what the metadata may
say.
"""

from __future__ import annotations

import msgspec
import pytest

from penstock.jobmaster.checkpoints import NotCovered, assemble
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.values.elements import Barrier, Generation
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import Metadata, RunBounds, Segment, StateRange, SubtaskSnapshot
from penstock.runtime.checkpoint.stored_ranges import stored_states, worth_keeping
from tests.unit.runtime.jobs.small_job import CommittedRows, graph_of

OLD, OLDER = Segment("shared/old", 100), Segment("shared/older", 100)
GENERATION = Generation(1, 1)
GRAPH = graph_of(lambda env: env.from_collection([1, 2]).sink_to(CommittedRows()))


def range_in(segment: int, length_bytes: int, offset: int = 0) -> StateRange:
    return StateRange("op", "s", segment, offset, length_bytes, 7, 1)


def acknowledged(slot: int, segment: Segment | None, ranges: list[StateRange], earlier: list[Segment]) -> SlotAck:
    snapshot = SubtaskSnapshot(0, slot, [], [], [], ranges, [], [], [])
    return SlotAck(GENERATION, slot, 2, segment, [snapshot], earlier)


def metadata_of(acks: list[SlotAck], earlier: frozenset[str]) -> Metadata:
    publish = PublishCheckpoint(Barrier(2, None), GENERATION, tuple(acks), 0.0, False)
    return assemble(GRAPH, "job", "job", "inc", publish, 0, [], [], earlier=earlier).metadata


def test_segments_are_given_up_until_half_of_the_others_is_named() -> None:
    segments = [Segment("shared/new", 100), OLD, OLDER]
    ranges = [range_in(0, 50), range_in(1, 20), range_in(1, 29, 20), range_in(2, 50)]
    worth = worth_keeping(ranges, segments)
    assert worth == {0, 2}, "of the three together, 151 bytes of 300 are named by nobody"
    assert [(s.segment.path, s.length_bytes) for s in stored_states(ranges, segments, worth)] == [
        ("shared/new", 50),
        ("shared/older", 50),
    ]


def test_a_short_segment_of_which_little_is_named_does_not_end_the_chain_of_a_long_one() -> None:
    segments = [Segment("shared/whole", 5_000), Segment("shared/changed", 100), Segment("shared/more", 100)]
    ranges = [range_in(0, 5_000), range_in(1, 1), range_in(2, 100)]
    assert worth_keeping(ranges, segments) == {0, 1, 2}


def test_a_long_segment_of_which_little_is_named_goes_first() -> None:
    segments = [Segment("shared/whole", 5_000), Segment("shared/changed", 100), Segment("shared/more", 100)]
    ranges = [range_in(0, 100), range_in(1, 49), range_in(2, 100)]
    assert worth_keeping(ranges, segments) == {1, 2}
    assert worth_keeping([range_in(0, 0)], segments) == frozenset()
    assert worth_keeping([], segments) == frozenset()


def test_what_is_known_of_the_keys_of_a_range_stays_with_it() -> None:
    bounds = RunBounds(1, 3, b"a", b"c")
    sorted_range = StateRange("op", "s", 0, 10, 40, 7, 1, bounds)
    ack = acknowledged(0, OLD, [range_in(0, 10), sorted_range], [])
    (snapshot,) = metadata_of([ack], frozenset()).subtasks
    assert snapshot.keyed == [range_in(0, 10), sorted_range]
    assert [run.bounds for run in stored_states(snapshot.keyed, [OLD], frozenset({0}))] == [None, bounds]
    assert [run.has_some_of(range(4, 8)) for run in snapshot.keyed] == [True, False]
    assert b"bounds" not in msgspec.json.encode(range_in(0, 10))


def test_metadata_name_each_segment_once_whichever_slot_names_it() -> None:
    acks = [
        acknowledged(0, Segment("shared/n0", 10), [range_in(0, 10), range_in(1, 60)], [OLD]),
        acknowledged(1, None, [range_in(2, 80), range_in(1, 40, 60)], [OLD, OLDER]),
    ]
    metadata = metadata_of(acks, frozenset({OLD.path, OLDER.path}))
    assert [s.path for s in metadata.segments] == ["shared/n0", OLD.path, OLDER.path]
    assert [[r.segment for r in s.keyed] for s in metadata.subtasks] == [[0, 1], [2, 1]]


def test_metadata_that_name_what_may_be_deleted_are_refused() -> None:
    acks = [acknowledged(0, Segment("shared/n0", 10), [range_in(1, 60)], [OLD, OLDER])]
    with pytest.raises(NotCovered, match="names segments that nothing keeps for it: shared/older"):
        metadata_of(acks, frozenset({OLD.path}))
