"""Compares Penstock's names with the record of PyFlink's."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests.pyflink.record_names import RECORD

_OF_JAVA = re.compile(r"(?:^|\.)(?:get_java_\w+|to_j_\w+|from_j_\w+)$|^.*\.__init__$")
"""Methods that hand out or take Java objects, and constructors, which take them in PyFlink."""


def missing_names() -> Iterator[str]:
    """Yield the names that Penstock lacks: `module`, `module:Class.method`, `module:Class.method(parameter)`."""
    for name, recorded in json.loads(RECORD.read_text(encoding="utf-8"))["modules"].items():
        module = _module(name)
        if module is None:
            yield name
            continue
        for exported in recorded["exports"]:
            if exported not in recorded["classes"] and exported not in dir(module):
                yield f"{name}:{exported}"
        for function, parameters in recorded["functions"].items():
            yield from _missing_callable(f"{name}:{function}", vars(module).get(function), parameters)
        for constant in recorded["constants"]:
            if constant not in dir(module):
                yield f"{name}:{constant}"
        for path, described in recorded["classes"].items():
            yield from _missing_of_class(name, module, path, described)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"penstock.{name}")
    except ModuleNotFoundError:
        return None


def _missing_of_class(name: str, module: ModuleType, path: str, described: dict[str, Any]) -> Iterator[str]:
    kind: Any = module
    for part in path.split("."):
        kind = getattr(kind, part) if part in _names_in(kind) else None
    if kind is None:
        yield f"{name}:{path}"
        return
    for constant in described["constants"]:
        if not hasattr(kind, constant):
            yield f"{name}:{path}.{constant}"
    for method, parameters in described["methods"].items():
        if not _OF_JAVA.search(f".{method}"):
            ours = getattr(kind, method) if method in _names_in(kind) else None
            yield from _missing_callable(f"{name}:{path}.{method}", ours, parameters)


def _names_in(owner: Any) -> set[str]:
    """Return the names of a module or class. `dir` leaves out the methods of an enum."""
    return {name for base in getattr(owner, "__mro__", [owner]) for name in vars(base)} if owner is not None else set()


def _missing_callable(name: str, ours: Any, theirs: list[str]) -> Iterator[str]:
    if ours is None:
        yield name
        return
    if not callable(ours):
        return
    given = [p for p in inspect.signature(ours).parameters.values() if p.name != "self"]
    positional = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in given)
    for place, text in enumerate(theirs):
        parameter = text.split("=")[0]
        if parameter.startswith("*") or (place < len(positional) and positional[place] == parameter):
            continue
        if not takes_any or place < len(positional):
            yield f"{name}({parameter})"
