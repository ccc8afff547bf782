"""Checks the laws of `Assigner` for any kind of window whose windows neither overlap nor leave gaps."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from penstock.operators.windows.assigners.assigner import Assigner, NoWindow
from penstock.protocol.values.metadata import WindowsShape


def check_laws(assigner: Assigner, times: Sequence[int]) -> None:
    """Check an assigner with some times (ms), at least one."""
    starts = [assigner.start_of(time) for time in times]
    ends = [assigner.end_of(start) for start in starts]
    _check_bounds(assigner, times, starts, ends)
    _check_columns(assigner, times, starts, ends)
    for time, start, end in zip(times, starts, ends):
        assert list(assigner.opened_by(time)) == [start]
        pane_start, pane_end = assigner.pane_of(time)
        assert pane_start <= time < pane_end
        for other in (pane_start, pane_end - 1):
            assert list(assigner.opened_by(other)) == [start], "a pane lies in the same windows as a whole"
        assert assigner.ending_at(end) == start
        for other in (time, end + 1):
            found = assigner.ending_at(other)
            assert found is None or assigner.end_of(found) == other
    assert pickle.loads(pickle.dumps(assigner)) == assigner
    assert msgspec.json.decode(msgspec.json.encode(assigner.shape()), type=WindowsShape) == assigner.shape()


def _check_bounds(assigner: Assigner, times: Sequence[int], starts: list[int], ends: list[int]) -> None:
    length_ms = assigner.shape().length_ms
    for time, start, end in zip(times, starts, ends):
        assert start <= time < end
        assert 0 < end - start <= assigner.longest_ms
        assert length_ms in (None, end - start), "readers of state compute the end from the length"
        assert assigner.start_of(start) == start, "the first of two phases sends the start as the time of its rows"
    for (start, end), (later_start, later_end) in pairwise(sorted(set(zip(starts, ends)))):
        assert start < later_start and end < later_end


def _check_columns(assigner: Assigner, times: Sequence[int], starts: list[int], ends: list[int]) -> None:
    array = np.array(times, np.int64)
    found = assigner.starts_of(array)
    assert (isinstance(found, int) and set(starts) == {found}) or np.array_equal(found, starts)
    assert assigner.start_of(array).dtype == assigner.end_of(np.array(starts)).dtype == np.int64
    assert assigner.start_of(array).tolist() == starts and assigner.end_of(np.array(starts)).tolist() == ends
    for time in times:
        assert assigner.ended(set(starts), time) == sorted({s for s, e in zip(starts, ends) if e - 1 <= time})
    assert assigner.ended([], 0) == [] == assigner.ended(set(starts), -(2**70))
    for time in (2**63 - 1, -(2**63)):
        with pytest.raises(NoWindow, match=f"timestamp is {time} ms"):
            assigner.starts_of(np.array([*times, time], np.int64))
