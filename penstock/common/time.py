"""Defines Duration, Time and Instant, and the text of durations in options: `500 ms`, `10 min`."""

from __future__ import annotations

import calendar
import datetime
import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, SupportsIndex

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


class Instant(datetime.datetime):
    """Represents a point in time: a datetime in UTC, with PyFlink's names. Rows of `Types.INSTANT()` have them.

    Example:
        Instant.of_epoch_milli(1_500).to_epoch_milli()
    """

    equals_datetime = True
    """Tells the encoding of keys that it has no more than a datetime has."""
    _EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def __new__(cls, seconds: Any, nanos: Any = 0, *fields: Any, **named: Any) -> Instant:
        """Make an instant of the seconds since the epoch and the nanoseconds after them, cut to microseconds."""
        if fields or named:  # datetime's own methods make their results by year, month, day ...
            return super().__new__(cls, seconds, nanos, *fields, **named)
        time = cls._EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)
        return super().__new__(
            cls, time.year, time.month, time.day, time.hour, time.minute, time.second, time.microsecond, datetime.UTC
        )

    @property
    def seconds(self) -> int:
        """Return the whole seconds since the epoch, rounded down."""
        return calendar.timegm(self.utctimetuple())

    @property
    def nanos(self) -> int:
        """Return the nanoseconds after the whole seconds."""
        return self.microsecond * 1000

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since the epoch, rounded down."""
        return self.seconds * 1000 + self.microsecond // 1000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Make an instant of milliseconds since the epoch.

        Args:
            epoch_milli: The milliseconds.

        Returns:
            The instant.
        """
        return Instant(epoch_milli // 1000, epoch_milli % 1000 * 1_000_000)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Instant, (self.seconds, self.nanos)

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class Time:
    """Represents a length of time in whole milliseconds, as PyFlink's windows take it. It may be negative."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __repr__(self) -> str:
        return f"Time({self._milliseconds})"

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"
