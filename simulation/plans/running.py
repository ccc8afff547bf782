"""Turns a seed, by its plan, into a verdict."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from random import Random

from penstock.common.configuration import Configuration
from simulation.cluster.cluster import Cluster
from simulation.faults.fault_plan import AIMED, KINDS, FaultPlan
from simulation.jobs.choices import NoChance, PlanError
from simulation.jobs.streams import Stream
from simulation.jobs.workload import WorkloadBuilder
from simulation.plans.drawing import plan_of
from simulation.plans.plan import Plan, decode_plan
from simulation.world.pace import Bounds
from simulation.world.trace import TraceLine
from simulation.world.world import World


@dataclass
class Verdict:
    """Describes the outcome. `summary` describes the run in a line; `trace` is kept if it was asked for."""

    seed: int
    violations: list[str]
    summary: str = ""
    events: int = 0
    trace: list[TraceLine] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    published: int = 0
    unaligned: int = 0
    rescales: int = 0
    replaced: int = 0
    """Deployments in which a spare played the slot of a process that was lost."""
    packed: int = 0
    """The number of times that a process has begun to play another slot, too."""
    drained: int = 0
    """Checkpoints that were taken while the job drained."""
    occurred: bool = True
    """True if the schedule of the scenario occurred; always for runs without one."""
    plan: Plan | None = None
    """The plan of a run that has failed."""


def declare(plan: Plan, is_strict: bool = True) -> WorkloadBuilder:
    """Return the job of a plan; its `steps` say what of the plan was used. `is_strict`: all of it has to be.

    Raises: PlanError: this version cannot declare it."""
    try:
        configuration = Configuration(plan.options)
        configuration.validate()
    except ValueError as error:
        raise PlanError(f"options of the plan: {error}") from error
    job = WorkloadBuilder(NoChance(), configuration)
    streams: dict[int, Stream] = {}
    for step in plan.steps:
        job.repeat(step, streams, is_strict)
    if not job.sinks:
        raise PlanError("no step of the plan is a sink")
    if not plan.chaining:
        job.environment.disable_operator_chaining()
    return job


def build(plan: Plan, with_trace: bool = False, bounds: Bounds | None = None) -> Cluster:
    """Return the cluster that runs a plan.

    Raises: PlanError: this version cannot run it."""
    check_kinds(plan.faults)
    job = declare(plan)
    try:
        workload = job.build()
        if plan.graph_changes_seed is not None:
            workload.change_graphs(Random(plan.graph_changes_seed))
        if plan.declared_changes_seed is not None:
            workload.change_declarations(Random(plan.declared_changes_seed), not plan.names_stored_state)
    except Exception as error:
        raise PlanError(f"the job of the plan has no graph: {type(error).__name__}: {error}") from error
    world = World(plan.world_seed, [] if with_trace else None)
    world.interleaves, world.is_parallel = plan.interleaves, plan.is_parallel
    world.names_stored_state = plan.names_stored_state
    cluster = Cluster(world, workload, plan.faults, plan.pace, bounds or Bounds())
    cluster.places = plan.places
    if cluster.places is None:
        cluster.bound_durations()
    return cluster


def check_kinds(faults: FaultPlan) -> None:
    """Raise PlanError for a fault that this version does not know."""
    for kind in faults.kinds:
        if kind not in KINDS:
            raise PlanError(f"there is no fault {kind!r} in this version, only {', '.join(sorted(KINDS))}")
    if faults.aimed not in (None, *AIMED):
        raise PlanError(f"faults cannot be aimed {faults.aimed!r}, only {', '.join(AIMED)}")


def plan_as_read(seed: int) -> Plan:
    """Return the plan of a seed as it is read from its file, so that there is one way only to run it."""
    return decode_plan(plan_of(seed).encode(), f"the plan of seed {seed}")


def run_seed(seed: int, with_trace: bool = False) -> Verdict:
    """Run the plan of a seed. What raises before the run begins is a violation, too."""
    try:
        return run_plan(plan_as_read(seed), with_trace, seed)
    except Exception:
        return Verdict(seed, [f"the run could not be set up\n{traceback.format_exc()}"])


def run_plan(plan: Plan, with_trace: bool = False, seed: int = 0, bounds: Bounds | None = None) -> Verdict:
    """Run a plan. `seed`: the seed that the verdict names. `bounds` None: the usual bounds of a run.

    Raises: PlanError: this version cannot run it."""
    cluster = build(plan, with_trace, bounds)
    verdict = run_cluster(seed, cluster)
    verdict.plan = plan if verdict.violations else None
    return verdict


def run_cluster(seed: int, cluster: Cluster) -> Verdict:
    world = cluster.world
    try:
        cluster.run()
    except Exception:
        world.violate(f"raised\n{traceback.format_exc()}")
    log, statistics = cluster.job.log, cluster.statistics
    published = log.published if log else 0
    summary = (
        f"{cluster.workload.summary}; {world.events} events, {world.now_ms:.0f} ms, {statistics.drivers} drivers, "
        f"{statistics.rescales} rescales ({statistics.refused} refused), {statistics.replaced} spares deployed, "
        f"{published} checkpoints, "
        f"faults: {', '.join(statistics.faults) or 'none'}"
    )
    return Verdict(
        seed,
        world.violations,
        summary,
        world.events,
        world.trace or [],
        statistics.faults,
        published,
        log.unaligned if log else 0,
        statistics.rescales,
        statistics.replaced,
        sum(driver.keeper.hosted for driver in cluster.drivers),
        log.draining if log else 0,
    )
