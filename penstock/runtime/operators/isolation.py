"""Values that user code may still change, made safe to keep: between chained operators and until they are encoded.

`acc.append(x); yield acc` over a slice would otherwise be a hundred references to one list.
"""

from __future__ import annotations

import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Callable

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED

_IMMUTABLE = frozenset(
    {int, float, str, bytes, bool, type(None), complex, date, datetime, time, timedelta, Decimal, range}
)


def isolated(value: Any) -> Any:
    """`value` itself where nobody can change it, else a copy."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is tuple and all(type(v) in _IMMUTABLE for v in value):
        return value
    return pickle.loads(pickle.dumps(value, protocol=5))


def isolation(declared: TypeInformation | None) -> Callable[[Any], Any] | None:
    """What to apply to each value of a stream of this type; None where its values cannot be changed."""
    if declared is None or declared is PICKLED:
        return isolated
    return isolated if declared.freeze is not None else None
