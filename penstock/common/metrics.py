"""Defines the metrics that functions count with: PyFlink's `MetricGroup`, `Counter`, `Meter` and `Distribution`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


class Metric(ABC):  # noqa: B024
    """Defines the common part of all metrics."""


class Counter(Metric):
    """Counts. The sum over all subtasks is an accumulator of the job's result, too."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add to the count.

        Args:
            n: The number to add.
        """

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract from the count.

        Args:
            n: The number to subtract.
        """

    @abstractmethod
    def get_count(self) -> int:
        """Return the count of this subtask."""


class Meter(Metric):
    """Measures events per second."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Note events.

        Args:
            value: The number of events.
        """

    @abstractmethod
    def get_count(self) -> int:
        """Return the number of events so far."""


class Distribution(Metric):
    """Keeps the number, sum, least and greatest of values."""

    @abstractmethod
    def update(self, value: float) -> None:
        """Add a value.

        Args:
            value: The value.
        """


class MetricGroup(ABC):
    """Makes the metrics of an operator, under its name. `RuntimeContext.get_metrics_group()` returns it.

    Reports, the REST API and the dashboard show them by subtask, as `operator.group.name`. They begin again after a
    restart.

    Example:
        class Parse(MapFunction):
            def open(self, runtime_context):
                self.bad = runtime_context.get_metrics_group().add_group("lines").counter("bad")

            def map(self, value):
                if not value.isdigit():
                    self.bad.inc()
                return value
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Make a group in this group.

        Args:
            name: Its name.
            extra: The name of a group in it, such as the value of a variable that `name` names.

        Returns:
            The new group: the inner one, if `extra` is given.
        """

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Make a counter, or return the one of this name.

        Args:
            name: Its name.

        Returns:
            The counter.

        Raises:
            ValueError: The group has another metric of this name.
        """

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """Show the result of a function: a number or a text.

        Args:
            name: Its name.
            obj: The function, without parameters. Another thread calls it about twice a second, so it should only read.

        Raises:
            ValueError: The group has another metric of this name.
            TypeError: `obj` cannot be called.
        """

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Make a meter, or return the one of this name.

        Args:
            name: Its name.
            time_span_in_seconds: The time over which the rate is taken.

        Returns:
            The meter.

        Raises:
            ValueError: The group has another metric of this name.
        """

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Make a distribution, or return the one of this name.

        It is shown as `name_count`, `name_sum`, `name_min`, `name_max` and `name_mean`.

        Args:
            name: Its name.

        Returns:
            The distribution.

        Raises:
            ValueError: The group has another metric of this name.
        """
