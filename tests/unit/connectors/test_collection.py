"""Reads rows that the program holds: each comes once through restores, and a wrong one is named before the start."""

from __future__ import annotations

import threading

import pytest

from penstock.common.types import Types
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.testing import read_all, verify_source
from penstock.datastream.connectors.base import NotReady, ReaderContext, SourceError


@pytest.mark.parametrize("parallelism", [1, 3])
def test_typed_rows_come_once_through_restores(parallelism: int) -> None:
    rows = [(i, f"name {i}") for i in range(25)]
    verify_source(CollectionSource(rows, Types.TUPLE([Types.LONG(), Types.STRING()])), rows, parallelism)


def test_untyped_rows_come_once_through_restores() -> None:
    rows = [1, "two", None, {"three": [3]}, (4, 5)]
    verify_source(CollectionSource(rows), rows)


def test_more_rows_than_are_encoded_at_once_keep_their_order() -> None:
    assert read_all(CollectionSource(range(10_000), Types.LONG()), rows_max=999) == list(range(10_000))


def test_an_empty_collection_ends() -> None:
    assert read_all(CollectionSource([], Types.LONG()), parallelism=2) == []


def test_a_reader_does_not_end_before_it_is_told_that_no_more_splits_come() -> None:
    reader = CollectionSource([], Types.LONG()).create_reader(ReaderContext(0, 1, "source"))
    assert reader.read(1) == NotReady(None)
    reader.no_more_splits()
    assert reader.read(1) is None


def test_a_row_of_another_type_is_named_before_the_job_starts() -> None:
    rows = [1] * 5000 + ["x"]
    with pytest.raises(SourceError, match="row 5000 of the collection .*'x'"):
        CollectionSource(rows, Types.LONG()).validate()


def test_a_row_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(SourceError, match="row 1 of the collection .*lock"):
        CollectionSource([1, threading.Lock()]).validate()
