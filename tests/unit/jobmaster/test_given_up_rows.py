"""Tests a checkpoint restored without its rows in flight: they are lost, counted by channel, and nothing else is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from penstock.common.configuration import Configuration
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import without_channel_state
from penstock.jobmaster.current_job import JobSettings
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, RestoreSourceError
from penstock.jobmaster.job_recovery import check_fit
from penstock.protocol.restore.given_up import GivenUp, RowsToGiveUp, without_rows_in_flight
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.metadata import LayerCut
from penstock.storage.layout import METADATA_NAME
from penstock.storage.metadata_file import encode_metadata
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.runtime.jobs.test_rescaled_jobs import EDGES, KEYS, ROWS, Cascade, keyed

KEY = "state-recovery.without-channel-state"


@pytest.mark.parametrize("edge", sorted(EDGES))
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1)])
def test_exactly_the_rows_in_flight_are_lost(edge: str, before: int, after: int) -> None:
    """The channels' events stay: without the end of data among them the job would never end."""
    found = 0
    for seed in range(6):
        cascade = Cascade(EDGES[edge], seed)
        cascade.start(before)
        cascade.crash_after(3 + 3 * seed, 0)
        assert cascade.restored is not None
        cascade.restored, given_up = without_rows_in_flight(cascade.restored)
        assert not edges_in_flight(cascade.restored)
        lost = sum(channel.rows for channel in given_up)
        found += lost
        assert all(channel.bytes > 0 and channel.rows > 0 for channel in given_up)
        cascade.start(after)
        rows = Counter(row[2] if isinstance(row, tuple) else row for row in cascade.finish())
        assert set(rows.values()) <= {1} and len(rows) == ROWS - lost, (seed, given_up)
    assert found, "in no run were rows in flight"


def test_rows_of_one_edge_are_given_up_and_those_of_others_are_not() -> None:
    for seed in range(6):
        cascade = Cascade(keyed, seed)
        cascade.start(2)
        cascade.crash_after(8 + seed, 0)
        assert cascade.restored is not None
        edges = sorted(edges_in_flight(cascade.restored))
        if len(edges) > 1:
            break
    assert cascade.restored is not None
    changed, given_up = without_rows_in_flight(cascade.restored, edges[:1])
    assert {channel.edge for channel in given_up} == set(edges[:1])
    assert edges_in_flight(changed) == set(edges[1:])
    cascade.restored = changed
    cascade.start(2)
    rows = cascade.finish()
    assert len(rows) == ROWS - sum(channel.rows for channel in given_up)
    for key in range(KEYS):
        values = [row[2] for row in rows if row[0] == key]
        assert [row[1] for row in rows if row[0] == key] == list(range(len(values))), "the state knows no gap"


def interrupted(channels_min: int) -> tuple[Cascade, list[GivenUp]]:
    """Return a job that was stopped with rows in flight on some channels of one edge, and those channels."""
    for seed in range(20):
        cascade = Cascade(keyed, seed)
        cascade.start(2)
        cascade.crash_after(8 + seed, 0)
        assert cascade.restored is not None
        _, in_flight = without_rows_in_flight(cascade.restored)
        edges = Counter(channel.edge for channel in in_flight)
        if edges and max(edges.values()) >= channels_min:
            (edge, _), *_ = edges.most_common()
            return cascade, [channel for channel in in_flight if channel.edge == edge]
    raise AssertionError("in no run were rows in flight on so many channels")


def test_rows_of_one_channel_are_given_up_and_those_next_to_it_are_not() -> None:
    cascade, in_flight = interrupted(2)
    assert cascade.restored is not None
    one, *others = in_flight
    # As somebody copies it out of a report.
    name = f" {one.edge} [{one.producer}->{one.consumer}]"
    give_up = RowsToGiveUp.parse(cascade.restored.checkpoint_id, [name])
    changed, told = without_channel_state(cascade.restored, give_up)
    assert told is not None and told.splitlines()[1:] == [f"  {one}"] and told.startswith(f"{one.rows} rows")
    _, left = without_rows_in_flight(changed)
    assert one.channel not in {channel.channel for channel in left}
    assert [channel for channel in left if channel.edge == one.edge] == others
    cascade.restored = changed
    cascade.start(2)
    assert len(cascade.finish()) == ROWS - one.rows


@pytest.mark.parametrize("name", ["no-such-edge", "{edge}[0 -> 2]", "{edge}[2 -> 0]", "{edge}[0 > 1]"])
def test_a_channel_that_there_is_not_is_refused_with_those_that_there_are(name: str) -> None:
    cascade, in_flight = interrupted(2)
    assert cascade.restored is not None
    name = name.format(edge=in_flight[0].edge)
    give_up = RowsToGiveUp.parse(cascade.restored.checkpoint_id, [in_flight[0].edge, name])
    with pytest.raises(IncompatibleGraph) as refused:
        without_channel_state(cascade.restored, give_up)
    told = str(refused.value)
    assert told.startswith("penstock.state-recovery.without-channel-state.channels: ") and repr(name) in told
    assert all(f"\n  {channel}" in told for channel in in_flight)


def test_the_message_lists_some_of_many_channels() -> None:
    cascade, _ = interrupted(1)
    assert cascade.restored is not None
    snapshot = next(s for s in cascade.restored.subtasks if any(c.pieces for cut in s.inputs for c in cut.captures))
    piece = next(p for cut in snapshot.inputs for c in cut.captures for p in c.pieces)
    layers = [LayerCut("old", n, 0, piece.first, piece.first + piece.rows, [piece], []) for n in range(40)]
    changed = msgspec.structs.replace(snapshot, layers=layers)
    subtasks = [changed if other is snapshot else other for other in cascade.restored.subtasks]
    many = msgspec.structs.replace(cascade.restored, subtasks=subtasks)
    with pytest.raises(IncompatibleGraph, match=r"\n  and \d+ more$") as refused:
        without_channel_state(many, RowsToGiveUp(many.checkpoint_id, ("none",)))
    assert len(str(refused.value).splitlines()) == 22


def test_nothing_is_given_up_of_another_checkpoint() -> None:
    cascade, in_flight = interrupted(1)
    assert cascade.restored is not None
    give_up = RowsToGiveUp(cascade.restored.checkpoint_id + 1, (in_flight[0].edge,))
    assert without_channel_state(cascade.restored, give_up) == (cascade.restored, None)


def test_a_refusal_says_values_of_the_options_that_give_up_those_rows_and_no_others() -> None:
    """What it says is set as it stands there, one edge after the other, and at last the program fits."""
    for seed in range(20):
        cascade = Cascade(keyed, seed)
        cascade.start(2)
        cascade.crash_after(8 + seed, 0)
        assert cascade.restored is not None
        if len(edges := sorted(edges_in_flight(cascade.restored))) > 1:
            break
    assert cascade.restored is not None
    metadata = msgspec.structs.replace(cascade.restored, segments=[])
    directories = Directories()
    directories.open("/savepoint", True).create(METADATA_NAME, encode_metadata(metadata))
    identity = JobIdentity("f" * 32, None, start_from=CheckpointToStartFrom("/savepoint", None))
    graph = cascade.graph(2)
    gone = replace(graph, edges=(), vertices=tuple(v for v in graph.vertices if v.is_source))
    options: dict[str, str] = {}
    for is_first in (True, False):
        settings = JobSettings.from_configuration(Configuration(options), 2)
        with pytest.raises(RestoreSourceError) as refused:
            check_fit(gone, identity, directories.open, True, settings.without_channel_state)
        pasted = str(refused.value).rpartition(", set ")[2].split(" and ")
        options = dict(value.split("=") for value in pasted)
        assert options[f"execution.{KEY}.checkpoint-id"] == str(metadata.checkpoint_id)
        assert sorted(options[f"penstock.{KEY}.channels"].split(",")) == edges
        if is_first:  # what is named already has to be named again
            options[f"penstock.{KEY}.channels"] = edges[0]
    settings = JobSettings.from_configuration(Configuration(options), 2)
    found = check_fit(gone, identity, directories.open, True, settings.without_channel_state)
    assert found is not None and found.metadata == metadata
