"""Defines type variables for the classes of streams, which derive from what is defined in this package."""

from typing import TypeVar

S = TypeVar("S")
"""The class of streams that operators make: `SingleOutputStreamOperator`."""
D = TypeVar("D")
"""The class of partitioned streams: `DataStream`."""
