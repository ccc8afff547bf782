"""Holds Penstock's names against those of PyFlink 2.3, and docs/pyflink-names.md against what is missing."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.pyflink.compared_names import missing_names

PAGE = Path(__file__).parents[3] / "docs/pyflink-names.md"
ROW = re.compile(r"\| `([^`]+)` \| (.+) \|")


# The reason of each name.
LEFT_OUT: dict[str, str] = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))
MISSING = frozenset(missing_names())


def is_covered(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}[.:(]*")


@pytest.mark.parametrize("name", sorted(MISSING))
def test_a_missing_name_is_listed_with_its_reason(name: str) -> None:
    assert any(is_covered(name, pattern) for pattern in LEFT_OUT), f"add it to {PAGE}, with the reason"


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_a_listed_name_is_missing(pattern: str) -> None:
    assert any(is_covered(name, pattern) for name in MISSING), f"it is here: take it from {PAGE}"


def test_most_names_are_here() -> None:
    assert len(MISSING) < 250
