"""Tests restores of pickled objects whose class is gone: the error names the class, the state and the way out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from penstock.state.backend import MissingStateClass, StateError
from penstock.state.operator_state import SPLIT, OperatorStateBackend
from tests.unit.state.backends import KEY_GROUPS, Backends, encoded

WAY_OUT = (
    r"holds an object of class shop\.Order, which cannot be imported \(.*shop.*\): keep a class of this name where it "
    "was, .*SavepointWriter; or give the new state another name"
)


class Shop:
    """A module with a class of the user's, which can be taken away."""

    def __init__(self) -> None:
        self.module = ModuleType("shop")
        self.order: Any = type("Order", (), {"__module__": "shop"})
        self.module.Order = self.order  # type: ignore[attr-defined]
        sys.modules["shop"] = self.module

    def close(self) -> None:
        sys.modules.pop("shop", None)

    def remove_class(self) -> None:
        del self.module.Order


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.close()


NESTED = Types.TUPLE([Types.LONG(), Types.LIST(Types.PICKLED_BYTE_ARRAY())])


@pytest.mark.parametrize(
    ("descriptor", "fill"),
    [
        (ValueStateDescriptor("s"), lambda state, order: state.update(order)),
        (ValueStateDescriptor("s", NESTED), lambda state, order: state.update((1, ["a", order]))),
        (ListStateDescriptor("s"), lambda state, order: state.update(["a", {"by": order}])),
        (MapStateDescriptor("s", Types.STRING()), lambda state, order: state.put("a", order)),
    ],
    ids=["value", "nested", "list", "map"],
)
@pytest.mark.parametrize("gone", ["the module", "the class"])
def test_a_class_that_is_gone_is_named_before_a_row_is_processed(
    backends: Backends, shop: Shop, descriptor: StateDescriptor, fill: Callable[[Any, Any], None], gone: str
) -> None:
    backend = backends.new()
    state = backend.state("op", descriptor)
    for key in range(3):
        backend.set_current_key(key, key)
        fill(state, shop.order())
    again = backends.restored(encoded(backend))
    again.restore_schema(backend.snapshot().schemas[0], "orders")
    if gone == "the module":
        shop.close()
    else:
        shop.remove_class()
    with pytest.raises(MissingStateClass, match=rf"state 's' of operator 'Counter' \(uid 'orders'\): .* {WAY_OUT}"):
        again.state("op", descriptor)


def test_among_other_objects_it_is_named_with_its_key(backends: Backends, shop: Shop) -> None:
    """Names it at the first access: in RocksDB objects are unpickled when they are asked for."""
    backend = backends.new()
    descriptor = ValueStateDescriptor("s")
    state = backend.state("op", descriptor)
    for key, value in ((0, "text"), (1, shop.order())):
        backend.set_current_key(key, key % KEY_GROUPS)
        state.update(value)
    again = backends.restored(encoded(backend))
    shop.close()
    with pytest.raises(MissingStateClass, match=WAY_OUT):
        state = again.state("op", descriptor)
        again.set_current_key(0, 0)
        assert state.value() == "text"
        again.set_current_key(1, 1)
        state.value()


class Unreadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not on Mondays")


def test_what_a_class_says_itself_is_the_reason(backends: Backends) -> None:
    backend = backends.new()
    descriptor = ValueStateDescriptor("s")
    backend.set_current_key("k", 1)
    backend.state("op", descriptor).update(Unreadable())
    again = backends.restored(encoded(backend))
    with pytest.raises(StateError, match="state 's' of .*cannot be unpickled: ValueError: not on Mondays") as raised:
        again.state("op", descriptor)
    assert not isinstance(raised.value, MissingStateClass), "a restart may help"


def test_operator_state_names_it_too(shop: Shop) -> None:
    backend = OperatorStateBackend({"op": "buffer"})
    backend.list_state("op", ListStateDescriptor("l"), SPLIT).add(shop.order())
    again = OperatorStateBackend({"op": "buffer"}, {"op": "orders"})
    again.restore(backend.parts(), backend.parts())
    shop.close()
    with pytest.raises(MissingStateClass, match=rf"state 'l' of operator 'buffer' \(uid 'orders'\): a value {WAY_OUT}"):
        again.list_state("op", ListStateDescriptor("l"), SPLIT)
