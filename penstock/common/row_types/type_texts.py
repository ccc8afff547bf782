"""Reads the text of a type, as checkpoints have it: it becomes that type again."""

from __future__ import annotations

import re

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType

_SCALARS: dict[str, ColumnType] = {
    known.text: known
    for known in (
        scalars.BOOLEAN, scalars.BYTE, scalars.SHORT, scalars.INT, scalars.LONG, scalars.FLOAT, scalars.DOUBLE,
        scalars.STRING, scalars.CHAR, scalars.BYTES, scalars.BIG_INT, scalars.BIG_DEC, scalars.SQL_DATE,
        scalars.SQL_TIME, scalars.SQL_TIMESTAMP, scalars.INSTANT, scalars.PICKLED,
    )
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")
_NAME = re.compile(r"[A-Z_]+")
_LISTS = ("LIST", "PRIMITIVE_ARRAY", "BASIC_ARRAY", "OBJECT_ARRAY")


class _NotAType(ValueError):
    """Signals a text that is not that of a type."""


def parse_type(text: str) -> ColumnType | None:
    """Read a type from its text.

    Args:
        text: The `text` of a type.

    Returns:
        The type; None for one that this version does not know.
    """
    try:
        found, end = _parse(text, 0)
    except (_NotAType, ValueError):
        return None
    return found if end == len(text) else None


def _parse(text: str, at: int) -> tuple[ColumnType, int]:
    for known, type in _SCALARS.items():
        if text.startswith(known, at) and text[at + len(known) : at + len(known) + 1] in ("", ",", ")"):
            return type, at + len(known)
    if (digits := _DECIMAL.match(text, at)) is not None:
        return scalars.decimal_type(int(digits[1]), int(digits[2])), digits.end()
    match = _NAME.match(text, at)
    if match is None or text[match.end() : match.end() + 1] != "(":
        raise _NotAType(text[at:])
    kind, at = match[0], match.end() + 1
    if kind == "ROW":
        return _parse_row(text, at)
    types, at = _parse_all(text, at)
    if kind == "TUPLE":
        return TupleType(tuple(types)), at
    if kind in _LISTS and len(types) == 1:
        return ListType(types[0], kind), at
    if kind == "MAP" and len(types) == 2:
        return MapType(types[0], types[1]), at
    raise _NotAType(text)


def _parse_all(text: str, at: int) -> tuple[list[ColumnType], int]:
    types = []
    while True:
        found, at = _parse(text, at)
        types.append(found)
        at, is_last = _behind(text, at)
        if is_last:
            return types, at


def _parse_row(text: str, at: int) -> tuple[ColumnType, int]:
    names: list[str] = []
    types: list[ColumnType] = []
    while True:
        name, found, at = _parse_field(text, at)
        names.append(name)
        types.append(found)
        at, is_last = _behind(text, at)
        if is_last:
            return RowType(tuple(types), tuple(names)), at


def _parse_field(text: str, at: int) -> tuple[str, ColumnType, int]:
    """Read "name TYPE", whose name may have spaces in it."""
    space = text.find(" ", at)
    while space >= 0:
        try:
            found, end = _parse(text, space + 1)
        except _NotAType:
            space = text.find(" ", space + 1)
            continue
        return text[at:space], found, end
    raise _NotAType(text[at:])


def _behind(text: str, at: int) -> tuple[int, bool]:
    """Return the position of the next type or of the list's end, and whether it is the end."""
    if text.startswith(", ", at):
        return at + 2, False
    if text.startswith(")", at):
        return at + 1, True
    raise _NotAType(text[at:])
