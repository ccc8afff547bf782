"""Checks what a state descriptor carries to its backend: name, kind and type; and which descriptors cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream.functions import AggregateFunction, ReduceFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)


class Average(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]


def test_descriptors_carry_name_kind_and_type() -> None:
    assert [
        d.kind
        for d in (
            ValueStateDescriptor("v"),
            ListStateDescriptor("l"),
            MapStateDescriptor("m"),
            ReducingStateDescriptor("r", max),
            AggregatingStateDescriptor("a", Average()),
        )
    ] == ["value", "list", "map", "reducing", "aggregating"]
    value = ValueStateDescriptor("v", Types.LONG())
    assert (value.get_name(), value.type_info) == ("v", Types.LONG())
    entries = MapStateDescriptor("m", Types.STRING(), Types.LONG())
    assert (entries.key_type_info, entries.value_type_info) == (Types.STRING(), Types.LONG())
    assert ListStateDescriptor("l", Types.LIST(Types.LONG())).type_info == Types.LIST(Types.LONG())


def test_a_reduce_function_may_be_a_callable() -> None:
    class Larger(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return max(value1, value2)

    assert ReducingStateDescriptor("r", Larger()).get_reduce_function()(1, 2) == 2
    assert ReducingStateDescriptor("r", lambda a, b: a + b).get_reduce_function()(1, 2) == 3


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: ValueStateDescriptor(""), "non-empty string"),
        (lambda: ValueStateDescriptor("v", int), "the type of state 'v' is made by Types"),  # type: ignore[arg-type]
        (lambda: MapStateDescriptor("m", str, Types.LONG()), "key type of state 'm'"),  # type: ignore[arg-type]
        (lambda: ReducingStateDescriptor("r", 3), "state 'r' needs a ReduceFunction"),
        (lambda: AggregatingStateDescriptor("a", lambda a, b: a), "state 'a' needs an AggregateFunction"),
    ],
)
def test_descriptors_that_cannot_be(make: Callable[[], object], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()
