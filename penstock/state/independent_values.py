"""Copies values that users can change."""

from __future__ import annotations

import copy
import pickle
from typing import Any

_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


def independent(value: Any) -> Any:
    """Return a copy that shares nothing changeable with `value`. Raises what pickling and copying raise."""
    kind = type(value)
    if kind in _UNCHANGEABLE or (kind is tuple and all(type(item) in _UNCHANGEABLE for item in value)):
        return value
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception:
        # Classes of the user's main program exist in a slot only by value, so pickle does not find them by name.
        return copy.deepcopy(value)
