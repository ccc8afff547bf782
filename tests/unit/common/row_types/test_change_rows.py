"""Tests rows of any kind in columns: what is decoded is what was encoded."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, RowKind, Types
from penstock.common.row_types.change_rows import ChangeRowType
from penstock.common.row_types.type_information import RowTypeError

CHANGES = ChangeRowType(Types.ROW_NAMED(["id", "tags"], [Types.LONG(), Types.LIST(Types.STRING())]))
ROWS = st.builds(
    lambda kind, n, tags: Row.of_kind(kind, id=n, tags=tags),
    st.sampled_from(RowKind),
    st.integers(-9, 9),
    st.lists(st.text(max_size=2), max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=6))
def test_kinds_and_fields_are_kept(rows: list[Row]) -> None:
    batch = pa.RecordBatch.from_arrays(CHANGES.encode(rows), schema=CHANGES.schema)
    assert CHANGES.decode(batch) == rows
    nested = [*rows, None]
    assert CHANGES.decode_column(CHANGES.encode_column(nested)) == nested
    assert [CHANGES.freeze(row) for row in rows] == rows


def test_tuples_are_inserts_and_what_does_not_fit_is_named() -> None:
    batch = pa.RecordBatch.from_arrays(CHANGES.encode([(1, ["a"])]), schema=CHANGES.schema)
    assert CHANGES.decode(batch) == [Row(id=1, tags=["a"])]
    with pytest.raises(RowTypeError, match=r"row 1, field 'id': 'x' .*CHANGES OF ROW") as refused:
        CHANGES.encode([(1, []), Row.of_kind(RowKind.DELETE, id="x", tags=[])])
    assert (refused.value.row_index, refused.value.field) == (1, "id")
