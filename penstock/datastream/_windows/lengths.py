"""Reads the lengths of time that windows and triggers are given."""

from __future__ import annotations

from typing import Any

from penstock.common.time import Duration, Time


def length_ms(length: Any, what: str, named: str) -> int:
    """Return a length in ms. `what` and `named` name the argument and the call in errors.

    Raises TypeError for a value that is no length of time, ValueError for one that is no whole number of ms.
    """
    if isinstance(length, Time):
        return length.to_milliseconds()  # the only kind of length that may be negative
    try:
        duration = Duration.of(length)
    except ValueError as error:
        raise TypeError(
            f"{named}: the {what} is a Duration or a Time, e.g. Duration.of_seconds(10); got {length!r}"
        ) from error
    if duration.nanoseconds % 10**6:
        raise ValueError(f"{named}: the {what} is a whole number of milliseconds, got {duration}")
    return duration.to_millis()
