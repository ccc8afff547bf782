"""Copies values that user code may still change: between chained operators, and until they are encoded.

`acc.append(x); yield acc` over a slice would otherwise be a hundred references to one list.
"""

from __future__ import annotations

import copy
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Callable

from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Instant
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED

_IMMUTABLE = frozenset(
    {int, float, str, bytes, bool, type(None), complex, date, datetime, time, timedelta, Decimal, range, Instant}
)


def isolation(declared: TypeInformation | None, operator: str) -> Callable[[Any], Any] | None:
    """Return the copying function for values of a stream of this type, which `operator` emits; None if they are
    immutable. The function returns an immutable value itself, else a copy. Raises `OperatorFailure`.
    """
    if declared is not None and declared is not PICKLED and declared.freeze is None:
        return None

    def isolated(value: Any) -> Any:
        kind = type(value)
        if kind in _IMMUTABLE:
            return value
        if kind is tuple and all(type(v) in _IMMUTABLE for v in value):
            return value
        try:
            return pickle.loads(pickle.dumps(value, protocol=5))
        except Exception:
            return _deep_copy(value, operator)

    return isolated


def _deep_copy(value: Any, operator: str) -> Any:
    """Copy a value, but keep its classes. The classes of the user's main program exist in a slot only by value, so
    pickle does not find them by name.
    """
    try:
        return copy.deepcopy(value)
    except Exception as error:
        message = f"its output cannot be copied: {error}; the row was {value!r:.200}"
        raise OperatorFailure(operator, TypeError(message), ours=True) from error
