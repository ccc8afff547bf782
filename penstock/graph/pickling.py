"""Pickles operators for slots, with an error that names the operator and the variable that cannot be pickled.

Each operator is pickled apart, so that it has an object of its own where the program gives one to several. Without it,
two operators call one object in two threads, and each keeps its state in what the other has opened last.
"""

from __future__ import annotations

import io
import pickle
import types
from dataclasses import dataclass, field
from typing import Any, Iterator

import cloudpickle

from penstock.common.program.failures import summary
from penstock.common.program.program_classes import (
    DEFINITION_BYTES_MAX,
    begin_program,
    is_current,
    key_of,
    main_classes,
    note_classes,
    register_class,
)
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.declared_functions import AnyWindowSpec, BroadcastSpec, TriggeredWindowSpec
from penstock.graph.job_graph import JobGraph, Operator

_DEPTH_MAX = 12
PICKLING_ERRORS = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, NotImplementedError)


class UnpicklableFunction(TypeError):
    """Signals that a function or connector cannot be sent to the slots. `operator` is its operator's name, `variable`
    the path to the value that is to blame, for example "closure variable 'lock'".
    """

    def __init__(self, message: str, operator: str | None, variable: str | None) -> None:
        super().__init__(message)
        self.operator = operator
        self.variable = variable


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles the main program's definitions by value, and operators apart. `claims`: its classes, by their keys."""

    def __init__(self, file: io.BytesIO, claims: _Claims) -> None:
        super().__init__(file, protocol=5)
        self._claims = claims

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Operator):
            return pickle.loads, (_dumped(value, self._claims, is_apart=True),)
        reduced = super().reducer_override(value)
        if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) > 2 and self._claims.claim(value):
            make, arguments, *state = reduced
            return register_class, (key_of(value), make, arguments), *state
        return reduced


class _OperatorPickler(_Pickler):
    """Pickles one operator."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Operator):
            return NotImplemented
        return super().reducer_override(value)


@dataclass
class _Claims:
    """Maps keys to classes. If a notebook defines a class again and both are in use, the key is the newer one's."""

    of_key: dict[str, type] = field(default_factory=dict)
    redefined: dict[str, type] = field(default_factory=dict)

    def claim(self, kind: type) -> bool:
        """Return whether the class has its key."""
        key = key_of(kind)
        if self.of_key.setdefault(key, kind) is kind:
            return True
        if is_current(kind):
            self.redefined[key] = kind
        return False


class _Bounded(io.BytesIO):
    """Collects a pickle, up to a bound: a class may refer to large globals."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > DEFINITION_BYTES_MAX:
            raise ValueError(f"its definition, with what it refers to, takes more than {DEFINITION_BYTES_MAX} bytes")
        return super().write(data)


def _dumped(value: Any, claims: _Claims, *, is_apart: bool = False) -> bytes:
    file = io.BytesIO()
    (_OperatorPickler if is_apart else _Pickler)(file, claims).dump(value)
    return file.getvalue()


@dataclass(frozen=True)
class _Shipment:
    """Holds a pickle with the classes of the program that nothing in it refers to: restored state may have objects of
    them. Loading it returns what was pickled.
    """

    definitions: dict[str, bytes]
    unsent: dict[str, str]
    pickled: bytes

    def __reduce__(self) -> Any:
        return _unpacked, (self.definitions, self.unsent, self.pickled)


def _unpacked(definitions: dict[str, bytes], unsent: dict[str, str], pickled: bytes) -> Any:
    begin_program(definitions, unsent)
    return pickle.loads(pickled)


def _definitions(claimed: dict[str, type]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return pickles of the main program's other classes, and why there is none of some."""
    definitions: dict[str, bytes] = {}
    unsent: dict[str, str] = {}
    for key, kind in main_classes().items():
        if key not in claimed:
            file = _Bounded()
            try:
                _Pickler(file, _Claims(dict(claimed))).dump(kind)
            except Exception as error:  # whatever the pickling of a global raises that no function needs
                unsent[key] = f"it cannot be sent to the slots ({summary(error)})"
            else:
                definitions[key] = file.getvalue()
    return definitions, unsent


def dumps(shipped: Any) -> bytes:
    """Pickle (by value for what the main program defines) a job graph or anything that has one as `.graph`. Operators
    share no objects in the copy. Loading the pickle makes the program's classes known to the process.

    Raises `UnpicklableFunction`.
    """
    claims = _Claims()
    try:
        pickled = _dumped(shipped, claims)
        if claims.redefined:
            claims = _Claims(claims.redefined)
            pickled = _dumped(shipped, claims)
    except PICKLING_ERRORS as error:
        graph = shipped if isinstance(shipped, JobGraph) else getattr(shipped, "graph", None)
        if isinstance(graph, JobGraph):
            check(graph)
        raise UnpicklableFunction(f"{type(shipped).__name__} cannot be pickled: {error}", None, None) from error
    note_classes(claims.of_key)
    return pickle.dumps(_Shipment(*_definitions(claims.of_key), pickled), 5)


def check(graph: JobGraph) -> None:
    """Raise `UnpicklableFunction` for the first operator or partitioner that cannot be pickled."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            for part, what in _shipped(operator):
                _check_part(part, f"{what}operator {operator.name!r}", operator.name)
    for edge in graph.edges:
        source = graph.vertices[edge.source].operators[-1]
        target: Operator = graph.vertices[edge.target].operators[0]
        where = f"the {edge.partitioner.kind.value} edge from {source.name!r} to {target.name!r}"
        _check_part(edge.partitioner.key_selector, f"the key selector of {where}", target.name)
        _check_part(edge.partitioner.custom, f"the partitioner of {where}", target.name)


def _shipped(operator: Operator) -> list[tuple[Any, str]]:
    """Return the parts of an operator that are the user's, each with a description if it is not the operator itself."""
    if isinstance(operator.function, AnyWindowSpec):
        spec: Any = operator.function
        parts = [
            (spec.reduce, "the reduce function of "),
            (spec.aggregate, "the aggregate function of "),
            (spec.process, "the window function of "),
            (spec.assigner, "the window assigner of "),
        ]
        if isinstance(spec, TriggeredWindowSpec):
            parts += [(spec.trigger, "the trigger of "), (spec.evictor, "the evictor of ")]
        return parts
    if isinstance(operator.function, BroadcastSpec):
        return [(operator.function.process, ""), (operator.function.descriptors, "the state descriptors of ")]
    if isinstance(operator.watermark_strategy, WatermarkStrategy):
        strategy = operator.watermark_strategy
        parts = [
            (strategy.timestamp_assigner, "the timestamp assigner of "),
            (strategy.new_generator, "the watermark generator of "),
        ]
        return parts if operator.function is strategy else [(operator.function, ""), *parts]
    return [(operator.function, "")]


def _check_part(part: Any, where: str, operator: str) -> None:
    error = _refusal(part)
    if error is None:
        return
    part = getattr(part, "wrapped", part)  # the user's callable inside a function of ours
    name = getattr(part, "__qualname__", None) or type(part).__qualname__
    path, value = _blame(part, (), frozenset(), 0) or ((), part)
    variable = " of ".join(reversed(path)) if path else None
    what = f"{variable} is" if variable else "it is"
    raise UnpicklableFunction(
        f"{where} ({name}) cannot be sent to the slots: {what} {_described(value)}, which cannot be pickled "
        f"({_reason(error)}). Create it in open(), in the slot, instead of before the job starts",
        operator,
        variable,
    )


def _refusal(value: Any) -> BaseException | None:
    try:
        cloudpickle.dumps(value, protocol=5)
    except PICKLING_ERRORS as error:
        return error
    return None


def _blame(value: Any, path: tuple[str, ...], seen: frozenset[int], depth: int) -> tuple[tuple[str, ...], Any] | None:
    """Find the deepest part of an unpicklable value that cannot be pickled itself."""
    if depth < _DEPTH_MAX:
        seen = seen | {id(value)}
        for label, part in _parts(value):
            if id(part) not in seen and _refusal(part) is not None:
                return _blame(part, (*path, label), seen, depth + 1)
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield f"the object of the method {value.__func__.__name__}()", value.__self__
        value = value.__func__
    if isinstance(value, types.FunctionType):
        yield from _variables(value)
        return
    if isinstance(value, type):
        for name, attribute in vars(value).items():
            if isinstance(attribute, (staticmethod, classmethod)):
                attribute = attribute.__func__
            if not name.startswith("__") or isinstance(attribute, types.FunctionType):
                yield f"attribute {name!r} of class {value.__name__}", attribute
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"entry {key!r}", item
            yield f"key {key!r}", key
        return
    if isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            yield f"item {index}", item
        return
    for name, attribute in _attributes(value).items():
        yield f"attribute {name!r}", attribute
    if type(value).__module__ == "__main__" or "<locals>" in type(value).__qualname__:
        yield f"its class {type(value).__name__}", type(value)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f"closure variable {name!r}", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f"global variable {name!r}", function.__globals__[name]
    for default in function.__defaults__ or ():
        yield "a default argument", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f"the default of argument {name!r}", default


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in _slots(kind):
            if hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    return found


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _described(value: Any) -> str:
    kind = type(value)
    text = f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
    name = getattr(value, "__qualname__", None)
    return f"{text} ({name})" if name else text


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
