"""Holds `Row` to PyFlink's: how it is made, changed, compared and pickled, and which rows cannot be made."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from penstock.common import Row, RowKind


def test_rows_are_made_as_in_pyflink() -> None:
    assert Row(1, "a")[1] == "a"
    named = Row(id=1, name="a")
    assert (named.id, named["name"], named[0], len(named), list(named)) == (1, "a", 1, 2, [1, "a"])
    person = Row("name", "age")
    assert person("Alice", 11).age == 11
    assert person("Alice", 11).as_dict() == {"name": "Alice", "age": 11}
    assert Row.of_kind(RowKind.UPDATE_AFTER, 1).get_row_kind() is RowKind.UPDATE_AFTER
    assert str(RowKind.DELETE) == "-D"
    assert "name" in named and "x" not in named and 1 not in named
    assert "name" in person and 1 in Row(1)
    assert repr(named) == "Row(id=1, name='a')" and repr(Row(1)) == "<Row(1)>"


def test_fields_can_be_changed() -> None:
    row = Row(id=1, name="a")
    row.id = 2
    row["name"] = "b"
    row[0] += 1
    assert row == Row(id=3, name="b")
    row.set_field_names(["x", "y"])
    assert row.x == 3


def test_equality_and_hash() -> None:
    assert Row(1, 2) == Row(1, 2) == Row(a=1, b=2) and hash(Row(1, 2)) == hash(Row(a=1, b=2))
    assert Row(a=1, b=2) != Row(b=1, a=2)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != (1,)


def test_rows_are_pickled_whole() -> None:
    row = Row.of_kind(RowKind.DELETE, a=1, b=[Row(2)])
    copy = pickle.loads(pickle.dumps(row))
    assert copy == row and copy.a == 1 and copy.get_row_kind() is RowKind.DELETE
    assert Row(a=Row(b=1)).as_dict(True) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "wrong, error, says",
    [
        (lambda: Row(1, a=2), ValueError, "args and kwargs"),
        (lambda: Row(a=1).b, AttributeError, "no field 'b' in this Row \\(a\\)"),
        (lambda: Row(1)["a"], KeyError, "it has no field names"),
        (lambda: setattr(Row(a=1), "b", 2), AttributeError, "no field 'b'"),
        (lambda: Row("a")(1, 2), ValueError, "expected 1 values"),
        (lambda: Row(1)(2), TypeError, "field names"),
        (lambda: Row(1).as_dict(), TypeError, "without field names"),
        (lambda: Row(1).set_field_names(["a", "b"]), ValueError, "2 names for 1 fields"),
    ],
)
def test_what_cannot_be(wrong: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong()
