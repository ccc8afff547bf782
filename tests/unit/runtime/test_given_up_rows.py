"""A checkpoint restored without its rows in flight: they are lost, counted by channel, and nothing else is."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.protocol.restore.given_up import without_rows_in_flight
from penstock.protocol.restore.rescale import edges_in_flight
from tests.unit.runtime.test_rescaled_jobs import EDGES, KEYS, ROWS, Cascade, keyed


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
