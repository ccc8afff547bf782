"""Pickles what is shipped to slots, with an error that names the operator and the variable that cannot be pickled.

Each operator is pickled apart, so that it has an object of its own where the program gives one to several. Without it,
two operators call one object in two threads, and each keeps its state in what the other has opened last.
"""

from __future__ import annotations

import io
import pickle
import types
from typing import Any, Iterator

import cloudpickle

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.declared_broadcasts import BroadcastSpec
from penstock.graph.declared_windows import WindowSpec
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
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Operator):
            return cloudpickle.loads, (cloudpickle.dumps(value, protocol=5),)
        return super().reducer_override(value)


def dumps(shipped: Any) -> bytes:
    """Pickle (by value for what the main program defines) a job graph or anything that has one as `.graph`. Operators
    share no objects in the copy.

    Raises `UnpicklableFunction`.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump(shipped)
        return file.getvalue()
    except PICKLING_ERRORS as error:
        graph = shipped if isinstance(shipped, JobGraph) else getattr(shipped, "graph", None)
        if isinstance(graph, JobGraph):
            check(graph)
        raise UnpicklableFunction(f"{type(shipped).__name__} cannot be pickled: {error}", None, None) from error


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
    if isinstance(operator.function, WindowSpec):
        spec = operator.function
        return [
            (spec.reduce, "the reduce function of "),
            (spec.aggregate, "the aggregate function of "),
            (spec.process, "the window function of "),
        ]
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
