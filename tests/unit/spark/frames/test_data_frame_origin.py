"""Tests what a query says, without the numbers that a session gives to its columns."""

from __future__ import annotations

import pytest

from penstock.spark.frames.data_frame_origin import _query


class Plan:
    def __init__(self, text: str) -> None:
        self._text = text

    def deterministic(self) -> bool:
        return True

    def treeString(self, *_: object) -> str:
        return self._text


def test_columns_are_numbered_as_they_appear() -> None:
    first = Plan("Project [id#7L, sum(x)#12L AS (total)#3]\n+- LogicalRDD [id#7L, x#9], false")
    second = Plan("Project [id#40L, sum(x)#41L AS (total)#42]\n+- LogicalRDD [id#40L, x#50], false")
    third = Plan("Project [id#40L, sum(x)#41L AS (total)#42]\n+- LogicalRDD [id#50L, x#40], false")
    assert _query(first) == _query(second) != _query(third)


@pytest.mark.parametrize("value", ["(tag#1 = {})", "tag#1 IN (a,{})", "tag#1 IN ({},b)", "[{}, a]", "[a, {} AS b#2]"])
def test_a_value_that_looks_like_a_columns_number_is_part_of_the_query(value: str) -> None:
    assert _query(Plan(value.format("#5"))) != _query(Plan(value.format("#6")))
