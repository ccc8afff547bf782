"""Defines InputDependencyConstraint, which old programs import."""

from __future__ import annotations

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """Names the inputs that Flink 1.x waits for before it starts an operator of a batch job. Unused, as in Flink 2."""

    ANY = 0
    ALL = 1
