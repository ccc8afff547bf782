"""Rows that user code may still change are made safe between operators and until they are encoded; the rest is not
copied. (`acc.append(x); yield acc` over a slice would be one list in all its rows.)"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.program.failures import OperatorFailure
from penstock.common.row_types.row import Row
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types
from penstock.datastream._streams.function_wrappers import CallableFlatMap, CallableMap
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import row_type
from penstock.operators.rows.chain import Chain, Slice
from penstock.operators.rows.creation import create_row_operator
from penstock.operators.rows.isolation import isolation
from tests.unit.operators.rows.bare_context import bare_context

IMMUTABLE = [1, 1.5, "a", b"a", True, None, (1, "a"), ()]


@pytest.mark.parametrize("value", IMMUTABLE)
def test_what_nobody_can_change_is_not_copied(value: Any) -> None:
    isolate = isolation(None, "op")
    assert isolate is not None and isolate(value) is value


@pytest.mark.parametrize("value", [[1], {"a": [1]}, (1, [2]), {1, 2}, Row(1, [2]), bytearray(b"x")])
def test_what_can_be_changed_is_copied(value: Any) -> None:
    isolate = isolation(None, "op")
    assert isolate is not None
    copy = isolate(value)
    assert copy == value and copy is not value


@pytest.mark.parametrize("declared", [Types.LONG(), Types.STRING(), Types.TUPLE([Types.LONG(), Types.STRING()])])
def test_streams_of_values_that_cannot_change_have_no_isolation(declared: TypeInformation) -> None:
    assert isolation(declared, "op") is None


@pytest.mark.parametrize("declared", [None, Types.PICKLED_BYTE_ARRAY(), Types.LIST(Types.LONG()),
                                      Types.TUPLE([Types.LIST(Types.LONG())])])  # fmt: skip
def test_streams_of_values_that_can_change_have_one(declared: TypeInformation | None) -> None:
    assert isolation(declared, "op") is not None


def class_of_the_main_program() -> type:
    """Return a class as cloudpickle brings it into a slot: by value, and not to be found under its name."""

    class Reading:
        def __init__(self, values: list[int]) -> None:
            self.values = values

    Reading.__module__ = "__main__"
    Reading.__qualname__ = "Reading"
    return Reading


def test_objects_of_classes_from_the_main_program_are_copied_too() -> None:
    isolate = isolation(None, "op")
    assert isolate is not None
    value = class_of_the_main_program()([1, 2])
    copy = isolate([value])[0]
    value.values.append(3)
    assert type(copy) is type(value) and copy.values == [1, 2]


def test_what_cannot_be_copied_names_the_operator_that_made_it() -> None:
    isolate = isolation(None, "my map")
    assert isolate is not None
    with pytest.raises(OperatorFailure, match="operator 'my map'.*cannot be copied.*lock") as failure:
        isolate({"lock": threading.Lock()})
    assert failure.value.operator == "my map" and failure.value.user_traceback() == ""


# ---- in a chain -----------------------------------------------------------------------------------------------------


def outputs(
    functions: Sequence[tuple[OperatorKind, Any, TypeInformation | None]], object_reuse: bool = False
) -> list[Any]:
    made: list[Any] = []
    declared = row_type(functions[-1][2])

    def emit(batch: pa.RecordBatch, rows: list[Any] | None, tag: str | None) -> None:
        made.extend(declared.decode(batch))

    operators = [Operator(str(i), f"op {i}", kind, f, None, out) for i, (kind, f, out) in enumerate(functions)]
    context = bare_context(*operators)
    created = [create_row_operator(o, context.for_operator(o)) for o in operators]
    chain = Chain(
        Vertex(0, "chain", 1, 128, tuple(operators)),
        created,
        emit,
        lambda: True,
        lambda: True,
        None,
        object_reuse,
        lambda: 0.0,
    )
    assert chain.run(Slice([1, 2, 3], None, None, 0, 3, 1e9))
    return made


class Accumulate:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, row: int) -> Iterator[list[int]]:
        self.seen.append(row)
        yield self.seen


LISTS = [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("declared", [None, Types.LIST(Types.LONG())])
@pytest.mark.parametrize("object_reuse", [False, True])
def test_each_row_is_what_it_was_when_it_was_put_out(declared: TypeInformation | None, object_reuse: bool) -> None:
    """Copies at a chain's end even with `pipeline.object-reuse`: rows wait there to be encoded."""
    assert outputs([(OperatorKind.FLAT_MAP, CallableFlatMap(Accumulate()), declared)], object_reuse) == LISTS


def clear_after(row: list[int]) -> Iterator[list[int]]:
    yield list(row)
    row.clear()


def test_a_function_cannot_reach_back_into_the_one_before() -> None:
    chained = [
        (OperatorKind.FLAT_MAP, CallableFlatMap(Accumulate()), None),
        (OperatorKind.FLAT_MAP, CallableFlatMap(clear_after), None),
    ]
    assert outputs(chained) == LISTS
    reused = [
        (OperatorKind.FLAT_MAP, CallableFlatMap(Accumulate()), None),
        (OperatorKind.FLAT_MAP, CallableFlatMap(clear_after), None),
    ]
    assert outputs(reused, object_reuse=True) == [[1], [2], [3]], "which is what object reuse means"


def test_a_row_of_the_main_programs_class_goes_through_a_chain() -> None:
    reading = class_of_the_main_program()
    chained = [
        (OperatorKind.MAP, CallableMap(lambda row: reading([row])), None),
        (OperatorKind.MAP, CallableMap(lambda r: r.values), None),
    ]
    assert outputs(chained) == [[1], [2], [3]]
