"""Checks names, types and numbers that operators are declared with."""

from __future__ import annotations

from typing import Any

from penstock.common.options.job import MAX_PARALLELISM_LIMIT
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import ListType, MapType


def check_parallelism(parallelism: int, operator: str) -> None:
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism <= 0:
        raise ValueError(f"operator {operator!r}: parallelism is a whole number of at least 1, got {parallelism!r}")


def check_max_parallelism(max_parallelism: int, operator: str) -> None:
    if not isinstance(max_parallelism, int) or not 0 < max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(
            f"operator {operator!r}: max parallelism lies between 1 and {MAX_PARALLELISM_LIMIT}, "
            f"got {max_parallelism!r}"
        )


def check_type(type_info: Any, operator: str) -> None:
    if type_info is not None and not isinstance(type_info, TypeInformation):
        hint = f"; write Types.{_SIMILAR[type_info]}" if isinstance(type_info, type) and type_info in _SIMILAR else ""
        if getattr(type_info, "__qualname__", "").startswith("Types."):
            hint = f"; call it: {type_info.__qualname__}(...)"
        raise TypeError(
            f"operator {operator!r}: a stream's type is made by Types, e.g. Types.LONG(); got {type_info!r}{hint}"
        )


_SIMILAR: dict[Any, str] = {
    int: "LONG()",
    str: "STRING()",
    float: "DOUBLE()",
    bool: "BOOLEAN()",
    bytes: "PRIMITIVE_ARRAY(Types.BYTE())",
}


def build_hint(given: Any) -> str:
    """Return a hint for a source or sink that may not be built yet, or ""."""
    return "; call build() on it" if callable(getattr(given, "build", None)) else ""


def check_key_type(key_type: Any) -> None:
    check_type(key_type, "key_by")
    if isinstance(key_type, (ListType, MapType)):
        raise TypeError(f"key_by(): {key_type} cannot be the type of a key; use a tuple of its parts")
