"""Collects named schedules: those that the protocol's rules describe, and those that the simulation has found."""

from __future__ import annotations

import re

from simulation.plans.running import Verdict
from simulation.scenarios import (
    adaptive,
    aimed,
    aligned_sources,
    backlog,
    barriers,
    bounds,
    calls,
    calm,
    changed_graphs,
    concurrent,
    cut,
    declarations,
    early_folders,
    event_time,
    expiring,
    finishing,
    floors,
    giving_up,
    idleness,
    kept,
    killed_steps,
    live_rescaling,
    local_copies,
    packing,
    publication,
    receivers,
    rescaling,
    restored_time,
    restoring,
    savepoints,
    shortening,
    slots,
    state,
    storage,
    stored_state,
    sweeping,
    timers,
    windows,
)
from simulation.scenarios.scenario import Scenario, run


def _name(scenario: type[Scenario]) -> str:
    """Convert BarriersTurn to barriers-turn."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", scenario.__name__).lower()


_PARTS = (
    aimed, cut, barriers, bounds, concurrent, calm, restoring, local_copies, rescaling, receivers, changed_graphs,
    giving_up, state, kept, expiring, declarations, event_time, restored_time, backlog, floors, timers, idleness,
    aligned_sources, finishing, savepoints, publication, early_folders, shortening, storage, stored_state, killed_steps,
    windows, calls, sweeping, slots, packing, live_rescaling, adaptive,
)  # fmt: skip
SCENARIOS: dict[str, type[Scenario]] = {_name(scenario): scenario for part in _PARTS for scenario in part.SCENARIOS}


def run_scenario(name: str, seed: int = 0, with_trace: bool = False) -> Verdict:
    return run(SCENARIOS[name], seed, with_trace)
