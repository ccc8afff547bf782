"""Adds a branch to a random job whose splits become idle, and none of whose rows may ever be late.

A split pauses for longer than the timeout, and its next rows lie beyond all others of the branch. A split that does not
pause has a row at least every few ms, so only a timer that counts time in which nobody could read takes it for idle.
The numbers of the rows say how far each split is: if time advances without a split that is only held up, its rows are
late.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from penstock.common.options import ExecutionOptions
from penstock.common.time import Duration
from penstock.common.watermark_strategy import WatermarkStrategy
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs.branches import branch_of, drawn_from
from simulation.jobs.choices import step
from simulation.jobs.scripted import Script, ScriptedSource
from simulation.jobs.streams import Expected, Stream

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder


APART = 1000
"""Numbers of different scripts are so far from each other."""
BEYOND = 400
"""No split has a smaller number after its pause, nor a larger one without a pause."""
HOP_MS = 60
"""The longest that a row is on its way from one subtask to the next, without the time in which an output fills up."""
SPLITS_MS = 60
"""The longest that a reader waits for its splits once it is restored."""
HOLD_UP = ("pause_slot", "pause_driver", "suspend_slot", "suspend_driver", "clock_jump")
"""Faults during which a process stands still: a timeout passes elsewhere, although a split has rows."""


def without_hold_ups(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return the faults that hold no process up: they end it, or leave it running."""
    return tuple("take_over_awake" if kind == "take_over" else kind for kind in kinds if kind not in HOLD_UP)


def idleness_of(seed: int) -> Random | None:
    """Return the random source of a branch of idle splits; None for the seeds that have none."""
    return branch_of(seed, "idleness")


def add_idle_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch next to all others, down to a sink of its own."""
    with drawn_from(job, random):
        at_source = random.random() < 0.4
        hops = random.randint(0, 2)
        # A job begins with all outputs empty: the first row fills none, and waits in each.
        hop_ms = HOP_MS + job.configuration.get(ExecutionOptions.BUFFER_TIMEOUT).ms
        timeout_ms = int(((hops + 2) * hop_ms + SPLITS_MS) * random.choice((1.0, 1.0, 2.0)))
        scripts = _scripts(random, timeout_ms, owners=random.randint(2, 3), can_pause=at_source)
        without = random.choice((0, 0, 1)) if at_source else 0
        cost_ms = random.choice((0.02, 0.3))
        assigned = scripted(job, scripts, cost_ms, timeout_ms, at_source, hops, without_splits=without)
        cost_ms = random.choice((0.02, 0.5, 1.5))  # what is slow below an assigner makes the job drain for long
        timed = job.delay(assigned, random.choice((1, 30)), cost_ms=cost_ms)
        if random.random() < 0.5 and not any(_pauses(script) for script in scripts):
            # What waits for a timer behind an idle split comes when the split does, and the time may be beyond it.
            timed = job.delay(timed, 1, cost_ms=cost_ms)
        job.sink(timed)


def _scripts(random: Random, timeout_ms: int, owners: int, can_pause: bool) -> tuple[Script, ...]:
    """Script the readers: each has one split or two, and at most one split pauses. Of two that pause, the first to come
    back would make the other's rows late. `can_pause`: also if its reader has another one that does not pause.
    """
    counts = [random.choice((1, 1, 2)) for _ in range(owners)]
    placed = [owner for owner, count in enumerate(counts) for _ in range(count)]
    pausing = random.randrange(len(placed)) if random.random() < 0.6 else None
    scripts: list[Script] = []
    for place, owner in enumerate(placed):
        steps = slowly(0, random.randint(20, 60))
        if place == pausing and (can_pause or counts[owner] == 1):
            pause_ms = int(timeout_ms * random.choice((0.5, 1.5, 2.0)))
            steps = [*steps[: 2 * random.randint(0, 10)], (None, pause_ms), *slowly(BEYOND, random.randint(5, 40))]
        scripts.append(Script(owner, place * APART, tuple(steps)))
    return tuple(scripts)


def _pauses(script: Script) -> bool:
    return any(first == BEYOND for first, _ in script.steps)


def slowly(first: int, rows: int, apart_ms: int = 2) -> list[tuple[int | None, int]]:
    """Return the steps of rows with consecutive numbers, with `apart_ms` between two of them."""
    steps: list[tuple[int | None, int]] = []
    for i in range(rows):
        steps += [(first + i, 1), (None, apart_ms)]
    return steps[:-1]


@step
def scripted(
    job: WorkloadBuilder,
    scripts: tuple[Script, ...] = (),
    cost_ms: float | None = None,
    timeout_ms: int | None = None,
    at_source: bool | None = None,
    hops: int | None = None,
    names_splits: bool = True,
    without_splits: int = 0,
) -> Stream:
    """Declare a source whose rows are never late, though its splits are idle after `timeout_ms`. `at_source`: False has
    the watermarks generated by an operator of its own, `hops` forward edges further on (None: 4). `names_splits`: False
    is a source without splits. `without_splits`: the number of subtasks that have none. A plan says the rest,
    nothing is drawn."""
    scripts = msgspec.convert(job.choose("scripts", lambda: msgspec.to_builtins(scripts)), tuple[Script, ...])
    cost_ms = job.cost_ms(cost_ms)
    timeout_ms = job.choose("timeout_ms", lambda: 60, timeout_ms)
    at_source = job.choose("at_source", lambda: True, at_source)
    hops = job.choose("hops", lambda: 4, hops)
    names_splits = job.choose("names_splits", lambda: True, names_splits, absent=True)
    without_splits = job.choose("without_splits", lambda: 0, without_splits, absent=0)
    parallelism = 1 + max(script.owner for script in scripts) + without_splits
    label = f.Label(0, [APART * i for i in range(len(scripts))], 8, cost_ms, relative=True)
    strategy = clocks.bounded().with_idleness(Duration.of_millis(timeout_ms))
    source, environment = ScriptedSource(scripts, names_splits, without_splits > 0), job.environment
    rows = tuple(label.label(number) for script in scripts for number in script.numbers())
    group = job.parallelisms.new_group(parallelism, pinned=True)
    if at_source:
        timed = strategy.with_timestamp_assigner(clocks.Assigner(clocks.RowTime(), label.label))
        made = environment.from_source(source, timed, "scripted")
    else:
        made = environment.from_source(source, WatermarkStrategy.no_watermarks(), "scripted")
    job.parallelisms.add(made.set_parallelism(parallelism), group)
    clock = clocks.RowTime() if at_source else None
    expected = Expected(rows, ordered=True, clock=clock, patient=at_source)
    before = Stream(made, group, expected, True)
    labelled = job.finish(made.map(label, f.ROW_TYPE), parallelism, expected, "label", True, [before], "forward")
    if at_source:
        return labelled
    passed = labelled
    for _ in range(hops):  # the more there are above the assigner, the longer it waits for the end of draining
        made = passed.stream.forward().map(f.Pass(0.02), f.ROW_TYPE).start_new_chain()
        passed = job.finish(made, parallelism, expected, "pass", True, [passed], "forward")
    timed = strategy.with_timestamp_assigner(clocks.Assigner(clocks.RowTime()))
    assigned = passed.stream.assign_timestamps_and_watermarks(timed)
    expected = Expected(rows, ordered=True, clock=clocks.RowTime(), patient=True)
    return job.finish(assigned, parallelism, expected, "assign", True, [passed])
