"""Draws plans: what a seed means. Each seed means another plan as soon as anything is drawn otherwise, so a plan
that matters is kept as a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from penstock.common.configuration import Configuration
from penstock.common.options import StateBackendOptions
from simulation.cluster.cluster import ROOM_FOR_A_ROW_BYTES
from simulation.faults.fault_plan import random_faults
from simulation.jobs.branches import add_evolving_branch, add_expiring_branch, evolution_of, expiry_of
from simulation.jobs.broadcast_branch import add_broadcast_branch, broadcasts_of
from simulation.jobs.call_branch import add_call_branch, calls_of_seed
from simulation.jobs.idle_branch import add_idle_branch, idleness_of, without_hold_ups
from simulation.jobs.streams import Stream
from simulation.jobs.window_branch import add_window_branch, windows_of_seed
from simulation.jobs.workload import ROWS_MAX, WorkloadBuilder
from simulation.plans.drawn_settings import (
    adapts,
    aimed_of,
    backlog_interval_of,
    changes_graph,
    claims_of,
    compression_of,
    concurrency_of,
    debloating_of,
    drains_of,
    has_room,
    interleaves,
    lazy_restores_of,
    live_rescales_of,
    local_copies_of,
    names_stored_state,
    random_configuration,
    random_pace,
    rare_checkpoints_of,
    restarts_of,
    savepoints_of,
    spares_of,
    state_backend_of,
    suspensions_of,
    uneven_rescales_of,
)
from simulation.plans.plan import Plan
from simulation.world.places import places_of


def plan_of(seed: int) -> Plan:
    """Draw the plan of a seed."""
    random = Random(seed)
    pace = random_pace(random)
    configuration = random_configuration(random, pace)
    configuration.set("slotmanager.redundant-taskmanager-num", spares_of(seed))
    idle = idleness_of(seed)
    others = (
        (broadcasts_of(seed), add_broadcast_branch),
        (expiry_of(seed), add_expiring_branch),
        (evolution_of(seed), add_evolving_branch),
        (windows_of_seed(seed), add_window_branch),
        (calls_of_seed(seed), add_call_branch),
    )
    job, chaining = _random_job(random, configuration, idle, others)
    world_seed = random.getrandbits(64)
    restarts_of(seed, configuration)
    state_backend_of(seed, configuration, (step.step for step in job.steps))
    lazy_restores_of(seed, configuration)
    if _has_changing_state(job) and configuration.get(StateBackendOptions.STATE_BACKEND) == "hashmap":
        configuration.set("penstock.state.rocksdb.object-cache-size", "20 kb")
    compression_of(seed, configuration)
    local_copies_of(seed, configuration)
    claims_of(seed, configuration)
    backlog_interval_of(seed, configuration)
    debloating_of(seed, configuration)
    checkpointing = "execution.checkpointing.interval" in configuration.key_set()
    faults = random_faults(random, checkpointing)
    changes = checkpointing and faults.rescale_share > 0 and changes_graph(seed)
    if checkpointing and not faults.is_calm:
        orders = (*savepoints_of(seed), *drains_of(seed, (step.step for step in job.steps)), *live_rescales_of(seed))
        if any(step.step == "await_rules" for step in job.steps):
            orders = (*orders, *uneven_rescales_of(seed))
        orders = (*orders, *suspensions_of(seed, configuration), *rare_checkpoints_of(seed, configuration))
        faults = replace(faults, aimed=aimed_of(seed), kinds=(*faults.kinds, *orders))
    if idle is not None:
        faults = replace(faults, kinds=without_hold_ups(faults.kinds))
    if faults.is_calm and has_room(seed):
        configuration.set("penstock.network.overdraft-bytes-max", ROOM_FOR_A_ROW_BYTES)
    elif not faults.is_calm and idle is None and (upload_ms := concurrency_of(seed, configuration, pace)) is not None:
        # The limit of durations knows of one checkpoint at a time, and idleness has no patience with eight.
        pace = replace(pace, upload_ms=upload_ms)
    places = places_of(seed)
    if not faults.is_calm and idle is None and job.parallelisms.fit_any_slots():
        faults = replace(faults, kinds=(*faults.kinds, *adapts(seed, configuration, places is not None)))
    in_memory = configuration.get(StateBackendOptions.STATE_BACKEND) == "hashmap"
    return Plan(
        told=f"seed {seed}",
        world_seed=world_seed,
        # A message within a step of another subtask would wake one up at the end of that step, as if it were held up.
        interleaves=interleaves(seed) and idle is None,
        is_parallel=idle is not None,
        pace=pace,
        options=configuration.to_dict(),
        faults=faults,
        places=places,
        graph_changes_seed=f"graphs of {seed}" if changes else None,
        declared_changes_seed=f"declarations of {seed}" if checkpointing and _has_changing_state(job) else None,
        names_stored_state=names_stored_state(seed) and in_memory,
        chaining=chaining,
        steps=job.steps,
    )


def _has_changing_state(job: WorkloadBuilder) -> bool:
    """Return whether the job has state that is declared otherwise after a resume, or kept elsewhere."""
    return any(step.step in ("evolve", "expire") for step in job.steps)


def _random_job(
    random: Random,
    configuration: Configuration,
    idle: Random | None,
    others: Sequence[tuple[Random | None, Callable[[WorkloadBuilder, Random], None]]],
) -> tuple[WorkloadBuilder, bool]:
    """Return the declared job, and whether its operators are chained. `idle`: draws a branch whose splits become idle.
    Without that, the first of `others` that is drawn adds its branch.
    """
    job = WorkloadBuilder(random, configuration)
    _declare_random_steps(job, random)
    chaining = random.random() >= 0.1
    if idle is not None:
        add_idle_branch(job, idle)
        return job, chaining
    for drawn, add_branch in others:
        if drawn is not None:
            add_branch(job, drawn)
            break
    return job, chaining


def _declare_random_steps(job: WorkloadBuilder, random: Random) -> None:
    streams: list[Stream] = [job.source(i) for i in range(random.randint(1, job.shape.sources_max))]
    for _ in range(random.randint(1, job.shape.steps_max)):
        place = random.randrange(len(streams))
        before = streams[place]
        if random.random() < 0.15 and len(streams) < 3:
            # The stream goes two ways from here.
            streams.append(job.draw_step(before))
        elif random.random() < 0.25 and len(streams) > 1:
            other = streams.pop(random.randrange(len(streams)))
            rest = streams.pop(random.randrange(len(streams)))
            if len(other.expected.rows) + len(rest.expected.rows) > ROWS_MAX:
                streams += [other, rest]
            else:
                streams.append(random.choice((job.union, job.connect))(other, rest))
        else:
            streams[place] = job.draw_step(before)
    for stream in streams:
        job.sink(stream)
