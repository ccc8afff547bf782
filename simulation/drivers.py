"""Keeps the drivers of a run, with what belongs to each of them, and the run's statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.control_network import ControlNetwork
from simulation.driver_process import DriverProcess
from simulation.slot_process import SlotKeeper
from simulation.world import Process


@dataclass
class Driver:
    process: Process
    host: DriverProcess
    control: ControlNetwork
    keeper: SlotKeeper
    orders: list[int] = field(default_factory=list)
    """Numbers of the savepoints that were ordered from it."""


@dataclass
class Statistics:
    """Counts what a run has been through: shows whether faults and modes are really tried."""

    drivers: int = 0
    generations: int = 0
    rescales: int = 0
    refused: int = 0
    """Changed graphs that a checkpoint with rows in flight on a vanished edge did not fit."""
    replaced: int = 0
    """Deployments in which a process played another slot than that of its seat."""
    faults: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    """The reasons why checkpoints were given up."""
