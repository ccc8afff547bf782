"""Describes a function of a broadcast stream as it was declared, before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BroadcastSpec:
    """Holds a (Keyed)BroadcastProcessFunction, and the descriptors of the broadcast states that it may ask for."""

    process: Any
    descriptors: tuple[Any, ...]
