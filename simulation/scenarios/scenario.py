"""Defines named schedules, and runs them.

A scenario declares a job, and steers what the seed would otherwise choose: it sees every frame, message and store call
as it happens (`observe`), and may inject faults. At the end it reports whether its schedule has occurred, because a run
in which it has not proves nothing. Seeds vary everything that the scenario leaves open.
"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

from penstock.common.configuration import Configuration
from simulation.cluster.cluster import Cluster
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.plans.plan import Plan, decode_plan
from simulation.plans.running import Verdict, build, run_cluster
from simulation.world.pace import CHECKPOINT_ROOT, Bounds, Pace
from simulation.world.places import PlacePlan
from simulation.world.world import World

OPTIONS: dict[str, Any] = {
    "heartbeat.timeout": "6 s",
    "slot.request.timeout": "60 s",
    "task.cancellation.timeout": "20 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1_000_000,
    "restart-strategy.fixed-delay.delay": "0 ms",
    "penstock.network.window-bytes": 2_000,
    "penstock.network.output-queue-bytes": 2_000,
    "penstock.network.bound-target": "0 ms",
    "penstock.slice.target": "1 ms",
    "execution.buffer-timeout.interval": "0 ms",
    "execution.checkpointing.interval": "10 ms",
    "execution.checkpointing.timeout": "60 s",
    "execution.checkpointing.tolerable-failed-checkpoints": 1_000_000,
    "execution.checkpointing.dir": CHECKPOINT_ROOT,
    "penstock.checkpoint-storage.fsync": False,
}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": True}
TIMEOUT = UNALIGNED | {"execution.checkpointing.aligned-checkpoint-timeout": "2 ms"}


class Scenario:
    """Runs a schedule once. The class's docstring describes the schedule; `section`: the section of PROTOCOL.md.
    `rules`: the numbers of the rules that the schedule proves, with its letter if a rule has several schedules."""

    section: ClassVar[int]
    rules: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[dict[str, Any]] = {}
    pace: ClassVar[Pace] = Pace()
    faults: ClassVar[FaultPlan] = FaultPlan()
    interleaves: ClassVar[bool] = False
    """True if messages reach a process in the middle of a step."""
    is_parallel: ClassVar[bool] = False
    """True if processes are busy at the same time."""
    names_stored_state: ClassVar[bool] = False
    """Says whether checkpoints name the state that earlier ones have stored."""
    places: ClassVar[PlacePlan | None] = None
    """The number of places for tasks; None: one for every task."""
    bounds: ClassVar[Bounds] = Bounds()
    """Limits the events and the time of a run."""
    bounds_durations: ClassVar[bool] = False
    """True if checkpoints have a limit of time; for a schedule without faults."""
    changes_graph: ClassVar[bool] = False
    """True if the graph changes when the job is resumed at other parallelisms."""
    changes_declarations: ClassVar[bool] = False
    """True if declared types change then, and where state is kept."""

    cluster: Cluster

    def __init__(self) -> None:
        self.count = 0
        """Counts how often the schedule has occurred."""

    def declare(self, job: WorkloadBuilder) -> None:
        """Declare a keyed count behind a source, slower than that."""
        slow = job.count(job.source(kind="sequence", rows=80, parallelism=2, cost_ms=0.1, keys=8), 3, cost_ms=1.0)
        job.sink(slow, 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Observe an event. `what`: "frame" (who: a `DataEndpoint`), "up" and "down" (a `ControlLink`), "timer" (an
        operator's name; detail: the timestamp), "open" (a `Process`; detail: a directory), "commit" (a `Process`;
        detail: the name of the output), "warn" (a driver's `Process`; detail: the text), or a store's method (a
        `Process`; detail: the path).
        """

    def has_happened(self) -> bool:
        return self.count > 0


def run(scenario_class: type[Scenario], seed: int, with_trace: bool) -> Verdict:
    random = Random(seed)
    scenario = scenario_class()
    options = {key: value for key, value in (OPTIONS | scenario.options).items() if value is not None}
    job = WorkloadBuilder(random, Configuration(options))
    scenario.declare(job)
    plan = _plan(scenario, job, random.getrandbits(64), seed)
    if is_plan(scenario_class, job):
        scenario.cluster = build(decode_plan(plan.encode(), plan.told), with_trace)
    else:
        scenario.cluster = _cluster(scenario, job, plan, with_trace)
    verdict = run_cluster(seed, scenario.cluster)
    verdict.occurred = scenario.has_happened()
    if verdict.violations and is_plan(scenario_class, job):
        verdict.plan = plan
    return verdict


def is_plan(scenario_class: type[Scenario], job: WorkloadBuilder) -> bool:
    """Return whether the schedule is no more than a job and its faults: nothing steers it, and steps say all of it."""
    return scenario_class.observe is Scenario.observe and job.is_recorded


def _plan(scenario: Scenario, job: WorkloadBuilder, world_seed: int, seed: int) -> Plan:
    name = type(scenario).__name__
    return Plan(
        told=f"{name}, seed {seed}",
        world_seed=world_seed,
        interleaves=scenario.interleaves,
        is_parallel=scenario.is_parallel,
        pace=scenario.pace,
        options=job.configuration.to_dict(),
        faults=scenario.faults,
        places=scenario.places,
        graph_changes_seed=f"graphs of {seed}" if scenario.changes_graph else None,
        declared_changes_seed=f"declarations of {seed}" if scenario.changes_declarations else None,
        names_stored_state=scenario.names_stored_state,
        steps=job.steps,
    )


def _cluster(scenario: Scenario, job: WorkloadBuilder, plan: Plan, with_trace: bool) -> Cluster:
    """Return the cluster that runs a schedule that the scenario steers."""
    world = World(plan.world_seed, [] if with_trace else None)
    world.interleaves = plan.interleaves
    world.is_parallel = plan.is_parallel
    world.names_stored_state = plan.names_stored_state
    workload = job.build()
    if plan.graph_changes_seed is not None:
        workload.change_graphs(Random(plan.graph_changes_seed))
    if plan.declared_changes_seed is not None:
        workload.change_declarations(Random(plan.declared_changes_seed), not plan.names_stored_state)
    cluster = Cluster(world, workload, plan.faults, plan.pace, scenario.bounds)
    cluster.places = plan.places
    if scenario.bounds_durations:
        cluster.bound_durations()
    world.observer = scenario.observe
    return cluster
