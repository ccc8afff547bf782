"""Compares hashes of whole columns with XXH3-64 of each string: another hash would send a key to another subtask."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.protocol.values.keys import key_hash
from penstock.runtime.output.string_hashes import hashes_of


@pytest.mark.parametrize("length", [*range(140), 239, 240, 241, 1000])
def test_a_string_of_any_length_has_its_published_hash(length: int) -> None:
    data = [bytes((n * 131 + length * 7 + i) % 256 for i in range(length)) for n in range(3)]
    assert hashes_of(pa.array(data)).tolist() == [xxh3_64_intdigest(d) for d in data]


@given(st.lists(st.text(max_size=60), max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_a_column_of_strings_has_the_hashes_of_its_keys(texts: list[str], skip: int, rest: int) -> None:
    column = pa.array(texts, pa.string())
    column = column.slice(skip, max(0, len(column) - skip - rest))
    assert hashes_of(column).tolist() == [key_hash(text) for text in column.to_pylist()]
