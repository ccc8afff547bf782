"""Defines the type variables of streams and functions. Without a type, `DataStream` is a stream of any rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    R = TypeVar("R", default=Any)
    In = TypeVar("In", default=Any)
    Out = TypeVar("Out", default=Any)
else:  # Python 3.11 has no defaults of type variables, which only type checkers need
    from typing import TypeVar

    T, R, In, Out = (TypeVar(name) for name in ("T", "R", "In", "Out"))
