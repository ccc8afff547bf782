"""From a seed to a verdict."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace
from random import Random

from penstock.simulation.cluster import ROOM_FOR_A_ROW_BYTES, Cluster
from penstock.simulation.faults import random_faults
from penstock.simulation.idle_branch import idleness_of, without_hold_ups
from penstock.simulation.places import places_of
from penstock.simulation.settings import (
    Bounds,
    aimed_of,
    changes_graph,
    has_room,
    interleaves,
    random_configuration,
    random_pace,
    restarts_of,
    spares_of,
)
from penstock.simulation.workload import random_workload
from penstock.simulation.world import World


@dataclass
class Verdict:
    """`summary` describes the run in a line; `trace` is kept where it was asked for."""

    seed: int
    violations: list[str]
    summary: str = ""
    events: int = 0
    trace: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    published: int = 0
    unaligned: int = 0
    rescales: int = 0
    replaced: int = 0
    """Deployments in which a spare played the slot of a process that was lost."""
    packed: int = 0
    """How often a process has begun to play another slot, too."""
    drained: int = 0
    """Checkpoints that were taken while the job drained."""
    came_about: bool = True
    """Of a scenario: whether its schedule did."""


def build(seed: int, with_trace: bool = False) -> Cluster:
    random = Random(seed)
    pace = random_pace(random)
    configuration = random_configuration(random, pace)
    configuration.set("slotmanager.redundant-taskmanager-num", spares_of(seed))
    idle = idleness_of(seed)
    workload = random_workload(random, configuration, idle=idle)
    world = World(random.getrandbits(64), [] if with_trace else None)
    world.interleaves = interleaves(seed)
    restarts_of(seed, configuration)
    checkpointing = "execution.checkpointing.interval" in configuration.key_set()
    faults = random_faults(random, checkpointing)
    if checkpointing and faults.rescale_share and changes_graph(seed):
        workload.change_graphs(Random(f"graphs of {seed}"))
    if checkpointing and not faults.is_calm:
        faults = replace(faults, aimed=aimed_of(seed))
    if idle is not None:
        world.is_parallel = True
        faults = replace(faults, kinds=without_hold_ups(faults.kinds))
    if faults.is_calm and has_room(seed):
        configuration.set("penstock.network.overdraft-bytes-max", ROOM_FOR_A_ROW_BYTES)
    cluster = Cluster(world, workload, faults, pace, Bounds())
    cluster.places = places_of(seed)
    if cluster.places is None:
        cluster.bound_durations()
    return cluster


def run_seed(seed: int, with_trace: bool = False) -> Verdict:
    try:
        cluster = build(seed, with_trace)
    except Exception:
        return Verdict(seed, [f"the run could not be set up\n{traceback.format_exc()}"])
    return run_cluster(seed, cluster)


def run_cluster(seed: int, cluster: Cluster) -> Verdict:
    world = cluster.world
    try:
        cluster.run()
    except Exception:
        world.violate(f"raised\n{traceback.format_exc()}")
    log, statistics = cluster.log, cluster.statistics
    published = log.published if log else 0
    summary = (
        f"{cluster.workload.summary}; {world.events} events, {world.now_ms:.0f} ms, {statistics.drivers} drivers, "
        f"{statistics.rescales} rescales ({statistics.refused} refused), {statistics.replaced} spares deployed, "
        f"{published} checkpoints, "
        f"faults: {', '.join(statistics.faults) or 'none'}"
    )
    return Verdict(
        seed, world.violations, summary, world.events, world.trace or [], statistics.faults, published,
        log.unaligned if log else 0, statistics.rescales, statistics.replaced,
        sum(driver.keeper.hosted for driver in cluster.drivers), log.draining if log else 0,
    )  # fmt: skip
