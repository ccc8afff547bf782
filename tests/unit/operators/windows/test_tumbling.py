"""Tests the arithmetic of tumbling windows, for rows and for columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.windows.assigners.tumbling import Tumbling
from penstock.protocol.values.metadata import WindowsShape
from tests.unit.operators.windows.assigner_laws import check_laws


@given(size_ms=st.integers(1, 10**12), offset=st.floats(-0.999, 0.999), data=st.data())
def test_the_windows_of_any_size_and_offset_keep_the_laws(size_ms: int, offset: float, data: st.DataObject) -> None:
    near = st.integers(-3 * size_ms, 3 * size_ms)
    times = data.draw(st.lists(near | st.integers(-(2**62), 2**62), min_size=1, max_size=20))
    check_laws(Tumbling(size_ms, int(offset * size_ms)), times)


def test_windows_begin_at_the_epoch_and_the_offset_later() -> None:
    assert [Tumbling(10).start_of(time) for time in (-11, -10, -1, 0, 9, 10)] == [-20, -10, -10, 0, 0, 10]
    assert [Tumbling(10, 3).start_of(time) for time in (-8, -7, 2, 3)] == [-17, -7, -7, 3]
    assert Tumbling(10, -4).end_of(-4) == 6


def test_metadata_describe_them() -> None:
    assert Tumbling(10).shape() == WindowsShape("tumbling", 10, {"size": 10})
    assert Tumbling(10, -4).shape() == WindowsShape("tumbling", 10, {"size": 10, "offset": -4})
