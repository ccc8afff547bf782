"""Compares the rows that a connector has read or written with those that are expected."""

from __future__ import annotations

from collections import Counter
from typing import Any, Sequence


def assert_same_rows(found: Sequence[Any], expected: Sequence[Any], label: str) -> None:
    """Check that the expected rows were found, in any order. Raises AssertionError, which begins with `label`."""
    missing = Counter(map(repr, expected)) - Counter(map(repr, found))
    extra = Counter(map(repr, found)) - Counter(map(repr, expected))
    assert not missing and not extra, (
        f"{label}: {missing.total()} rows missing {list(missing)[:3]}, {extra.total()} rows too many {list(extra)[:3]}"
    )


def first_difference(found: list[Any], expected: list[Any]) -> str:
    """Describe the first place at which two lists of rows differ."""
    for index, (here, there) in enumerate(zip(found, expected, strict=False)):
        if here != there:
            return f"row {index} is {here!r}, not {there!r}"
    return f"{len(found)} rows, not {len(expected)}"
