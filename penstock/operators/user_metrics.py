"""Holds the metrics that the functions of a subtask ask for, and reads their values for reports."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar

from penstock.common.metrics import Counter, Distribution, Meter, MetricGroup

log = logging.getLogger(__name__)

Value = int | float | str
MetricT = TypeVar("MetricT", bound="_Shown")


class _Shown(Protocol):
    """Represents a metric in reports."""

    def values(self, name: str, now_ms: float) -> dict[str, Value]: ...


class _Counter(Counter):
    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count

    def values(self, name: str, now_ms: float) -> dict[str, Value]:
        return {name: self._count}


class _Meter(Meter):
    """Measures from one report to the next, over those of the last `span_ms`."""

    def __init__(self, span_ms: float, now_ms: float) -> None:
        self._span_ms = span_ms
        self._count = 0
        self._seen = deque([(now_ms, 0)])
        """Times of reports, with the counts at them."""

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def values(self, name: str, now_ms: float) -> dict[str, Value]:
        while len(self._seen) > 1 and self._seen[1][0] <= now_ms - self._span_ms:
            self._seen.popleft()
        since_ms, before = self._seen[0]
        count = self._count
        self._seen.append((now_ms, count))
        elapsed_ms = now_ms - since_ms
        return {name: round(1000 * (count - before) / elapsed_ms, 3) if elapsed_ms > 0 else 0.0}


class _Distribution(Distribution):
    def __init__(self) -> None:
        # One tuple, so that a report from another thread never mixes two states.
        self._state: tuple[int, float, float, float] = (0, 0, 0, 0)

    def update(self, value: float) -> None:
        count, total, least, most = self._state
        if not count:
            least = most = value
        self._state = count + 1, total + value, min(least, value), max(most, value)

    def values(self, name: str, now_ms: float) -> dict[str, Value]:
        count, total, least, most = self._state
        mean = round(total / count, 6) if count else 0.0
        shown = {"count": count, "sum": total, "min": least, "max": most, "mean": mean}
        return {f"{name}_{which}": value for which, value in shown.items()}


class _Gauge:
    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._has_failed = False

    def values(self, name: str, now_ms: float) -> dict[str, Value]:
        try:
            value = self._read()
        except Exception as error:  # a figure is not worth a restart
            if not self._has_failed:
                log.warning("the gauge %s cannot be read: %s: %s", name, type(error).__name__, error)
            self._has_failed = True
            return {}
        return {name: value}


class UserMetrics:
    """Holds the metrics of one subtask, by operator and name. Functions make them; any thread reads them."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self.monotonic_ms = monotonic_ms
        self._metrics: dict[tuple[str, ...], _Shown] = {}

    def group(self, operator_name: str) -> MetricGroup:
        """Return the group of an operator."""
        return _Group(self, (operator_name,))

    def add(self, name: tuple[str, ...], kind: type[MetricT], make: Callable[[], MetricT]) -> MetricT:
        """Return the metric of this name, made if there is none. Raises ValueError if there is one of another kind."""
        found = self._metrics.get(name)
        if found is None:
            found = self._metrics[name] = make()
        if not isinstance(found, kind):
            raise ValueError(f"the metric {'.'.join(name)} is there already, as a {type(found).__name__.strip('_')}")
        return found

    def values(self) -> dict[str, Value]:
        """Return the figures by name."""
        if not self._metrics:
            return {}
        now_ms, found = self.monotonic_ms(), dict[str, Value]()
        for name, metric in self._metrics.copy().items():
            values = metric.values(".".join(name), now_ms)
            found.update({shown: _plain(value) for shown, value in values.items()})
        return found

    def totals(self) -> dict[str, int]:
        """Return the counts by the names that accumulators have: without the operator's."""
        found: dict[str, int] = {}
        for name, metric in self._metrics.copy().items():
            if isinstance(metric, Counter):
                key = ".".join(name[1:])
                found[key] = _within_64_bits(found.get(key, 0) + int(metric.get_count()))
        return found


def _plain(value: Any) -> Value:
    """Return a value that a message can carry: functions count with numbers of NumPy, too, and without limits."""
    if isinstance(value, Integral):  # bool, too, which no field of a message takes for a number
        return _within_64_bits(int(value))
    if isinstance(value, Real):
        return float(value)
    return str(value)


def _within_64_bits(value: int) -> int:
    return max(-(2**63), min(value, 2**63 - 1))


class _Group(MetricGroup):
    def __init__(self, metrics: UserMetrics, names: tuple[str, ...]) -> None:
        self._metrics = metrics
        self._names = names

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        return _Group(self._metrics, (*self._named(name), *([] if extra is None else [str(extra)])))

    def counter(self, name: str) -> Counter:
        return self._metrics.add(self._named(name), _Counter, _Counter)

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        if not callable(obj):
            raise TypeError(f"gauge({name!r}) takes a function without parameters, got {obj!r}")
        self._metrics.add(self._named(name), _Gauge, lambda: _Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        if time_span_in_seconds <= 0:
            raise ValueError(f"meter({name!r}): time_span_in_seconds is more than 0, got {time_span_in_seconds!r}")
        metrics, span_ms = self._metrics, 1000.0 * time_span_in_seconds
        return metrics.add(self._named(name), _Meter, lambda: _Meter(span_ms, metrics.monotonic_ms()))

    def distribution(self, name: str) -> Distribution:
        return self._metrics.add(self._named(name), _Distribution, _Distribution)

    def _named(self, name: str) -> tuple[str, ...]:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a metric and a group have a name, a text; got {name!r}")
        return (*self._names, name)
