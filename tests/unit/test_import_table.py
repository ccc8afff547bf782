"""Tests that the page of packages shows the table that the house is held to."""

from __future__ import annotations

from tests.unit.import_table import PAGE, page


def test_the_page_of_packages_is_that_of_the_house() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.unit.import_table"
