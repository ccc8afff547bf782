"""Defines Duration and Time, and their text in options: `500 ms`, `10 min`."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import total_ordering

_UNIT_NANOSECONDS = {
    "ns": 1, "nano": 1, "nanos": 1, "nanosecond": 1, "nanoseconds": 1,
    "us": 1_000, "µs": 1_000, "micro": 1_000, "micros": 1_000, "microsecond": 1_000, "microseconds": 1_000,
    "ms": 10**6, "milli": 10**6, "millis": 10**6, "millisecond": 10**6, "milliseconds": 10**6, "": 10**6,
    "s": 10**9, "sec": 10**9, "secs": 10**9, "second": 10**9, "seconds": 10**9,
    "m": 60 * 10**9, "min": 60 * 10**9, "mins": 60 * 10**9, "minute": 60 * 10**9, "minutes": 60 * 10**9,
    "h": 3600 * 10**9, "hour": 3600 * 10**9, "hours": 3600 * 10**9,
    "d": 86400 * 10**9, "day": 86400 * 10**9, "days": 86400 * 10**9,
}  # fmt: skip
_SHORTEST_FORM = [
    ("d", 86400 * 10**9),
    ("h", 3600 * 10**9),
    ("min", 60 * 10**9),
    ("s", 10**9),
    ("ms", 10**6),
    ("us", 1_000),
    ("ns", 1),
]


@total_ordering
@dataclass(frozen=True)
class Duration:
    """Represents a length of time, not negative, in whole nanoseconds."""

    nanoseconds: int

    def __post_init__(self) -> None:
        if self.nanoseconds < 0:
            raise ValueError(f"a duration is not negative, got {self.nanoseconds} ns")

    @classmethod
    def of_days(cls, days: int) -> Duration:
        """Make a duration of whole days of 24 hours.

        Args:
            days: The number of days, not negative.

        Returns:
            The duration.
        """
        return cls(int(days) * 86400 * 10**9)

    @classmethod
    def of_hours(cls, hours: int) -> Duration:
        """Make a duration of whole hours.

        Args:
            hours: The number of hours, not negative.

        Returns:
            The duration.
        """
        return cls(int(hours) * 3600 * 10**9)

    @classmethod
    def of_minutes(cls, minutes: int) -> Duration:
        """Make a duration of whole minutes.

        Args:
            minutes: The number of minutes, not negative.

        Returns:
            The duration.
        """
        return cls(int(minutes) * 60 * 10**9)

    @classmethod
    def of_seconds(cls, seconds: int, nano_adjustment: int = 0) -> Duration:
        """Make a duration of whole seconds, plus some nanoseconds.

        Args:
            seconds: The number of seconds.
            nano_adjustment: Nanoseconds to add.

        Returns:
            The duration.
        """
        return cls(int(seconds) * 10**9 + nano_adjustment)

    @classmethod
    def of_millis(cls, millis: int | float) -> Duration:
        """Make a duration of milliseconds.

        Args:
            millis: The number of milliseconds, not negative. A fraction is rounded to nanoseconds.

        Returns:
            The duration.
        """
        return cls(round(millis * 10**6))

    @classmethod
    def of_nanos(cls, nanos: int) -> Duration:
        """Make a duration of whole nanoseconds.

        Args:
            nanos: The number of nanoseconds, not negative.

        Returns:
            The duration.
        """
        return cls(int(nanos))

    @classmethod
    def of(cls, value: Duration | datetime.timedelta | Time | int | str) -> Duration:
        """Make a duration of a value of any kind that lengths of time have here.

        Example:
            Duration.of(500), Duration.of("10 min"), Duration.of(datetime.timedelta(seconds=3))

        Args:
            value: A `Duration`, a `Time`, a timedelta, a text such as "10 min", or a number of milliseconds.

        Returns:
            The duration.

        Raises:
            ValueError: The value is negative, or a text that is no duration.
        """
        if isinstance(value, Duration):
            return value
        if isinstance(value, datetime.timedelta):
            return cls((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000)
        if isinstance(value, Time):
            return cls.of_millis(value.to_milliseconds())
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return cls.of_millis(value)
        return cls.parse(str(value))

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read a whole number and a unit, as options have them: "500 ms", "10 min", "1 h".

        Args:
            text: The text. A number without a unit is milliseconds, as in Flink.

        Returns:
            The duration.

        Raises:
            ValueError: The text is no duration.
        """
        found = re.fullmatch(r"\s*(\d+)\s*([a-zµ]*)\s*", text.lower())
        if found is None or found[2] not in _UNIT_NANOSECONDS:
            raise ValueError(f"{text!r} is no duration: write a whole number and a unit, e.g. '500 ms' or '10 min'")
        return cls(int(found[1]) * _UNIT_NANOSECONDS[found[2]])

    @property
    def ms(self) -> float:
        """Return the length in milliseconds, with fractions."""
        return self.nanoseconds / 10**6

    @property
    def seconds(self) -> float:
        """Return the length in seconds, with fractions."""
        return self.nanoseconds / 10**9

    def to_millis(self) -> int:
        """Return the length in whole milliseconds, rounded down."""
        return self.nanoseconds // 10**6

    def to_timedelta(self) -> datetime.timedelta:
        """Return the length as a timedelta, rounded to microseconds."""
        return datetime.timedelta(microseconds=self.nanoseconds / 1000)

    def __lt__(self, other: object) -> bool:
        return self.nanoseconds < other.nanoseconds if isinstance(other, Duration) else NotImplemented

    def __str__(self) -> str:
        if not self.nanoseconds:
            return "0 ms"
        unit, size = next((u, s) for u, s in _SHORTEST_FORM if self.nanoseconds % s == 0)
        return f"{self.nanoseconds // size} {unit}"


@dataclass(frozen=True)
class Time:
    """Represents a length of time in whole milliseconds, as PyFlink's windows take it. It may be negative."""

    _milliseconds: int

    @classmethod
    def of(cls, value: int) -> Time:
        """Make a length of milliseconds.

        Args:
            value: The number of milliseconds.

        Returns:
            The length.
        """
        return cls(value)

    @classmethod
    def days(cls, days: int) -> Time:
        """Make a length of days of 24 hours.

        Args:
            days: The number of days.

        Returns:
            The length.
        """
        return cls(days * 86_400_000)

    @classmethod
    def hours(cls, hours: int) -> Time:
        """Make a length of hours.

        Args:
            hours: The number of hours.

        Returns:
            The length.
        """
        return cls(hours * 3_600_000)

    @classmethod
    def minutes(cls, minutes: int) -> Time:
        """Make a length of minutes.

        Args:
            minutes: The number of minutes.

        Returns:
            The length.
        """
        return cls(minutes * 60_000)

    @classmethod
    def seconds(cls, seconds: int) -> Time:
        """Make a length of seconds.

        Args:
            seconds: The number of seconds.

        Returns:
            The length.
        """
        return cls(seconds * 1000)

    @classmethod
    def milliseconds(cls, milliseconds: int) -> Time:
        """Make a length of milliseconds.

        Args:
            milliseconds: The number of milliseconds.

        Returns:
            The length.
        """
        return cls(milliseconds)

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds
