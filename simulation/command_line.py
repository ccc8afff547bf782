"""Runs seeds (`python -m simulation --seeds 0:1000`), and writes the plan of each run that fails."""

from __future__ import annotations

import argparse
import gc
import logging
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from simulation.files_in_memory import files_in_memory
from simulation.jobs.choices import PlanError
from simulation.plans.plan import read_plan
from simulation.plans.running import Verdict, build
from simulation.plans.shrinking import RUNS_MAX, SECONDS_MAX, shrink
from simulation.scenarios import SCENARIOS
from simulation.tasks import Task, write_plan
from simulation.world.trace import HEADER, Story, parse_story

_LOGGER = logging.getLogger("penstock")
FAILURES_TOLD_MAX = 20
TRACE_LINES_MAX = 400
SEEDS_PER_PROGRESS = 1000
_ALLOCATIONS_BETWEEN_COLLECTIONS = 500_000
"""Only a run that is far larger than others collects garbage before it is over."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", help="from:to, to not included, or a single seed; 0:100 unless told")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="run a plan, for example that of a failure")
    parser.add_argument("--scenario", help="a named schedule instead of random ones: " + ", ".join(sorted(SCENARIOS)))
    parser.add_argument("--trace", action="store_true", help="a line for each event: time in ms, process, what")
    parser.add_argument(
        "--story",
        nargs="+",
        metavar="KEY=VALUE",
        help="those lines of the trace only that tell of checkpoint=N, vertex=N, subtask=N (from 0), process=NAME",
    )
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--stop-at-first", action="store_true", help="end with the first seed that fails, without the others"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="make the plan of a failure smaller: that of --plan, or of one seed"
    )
    parser.add_argument(
        "--shrink-runs", type=int, default=RUNS_MAX, metavar="N", help=f"at most so many runs ({RUNS_MAX})"
    )
    parser.add_argument(
        "--shrink-seconds", type=float, default=SECONDS_MAX, metavar="S", help=f"for so long ({SECONDS_MAX:g} s)"
    )
    options = parser.parse_args(arguments)
    if options.scenario is not None and options.scenario not in SCENARIOS:
        parser.error(f"there is no scenario {options.scenario!r}; there are: {', '.join(sorted(SCENARIOS))}")
    try:
        story = parse_story(options.story or ())
    except ValueError as error:
        parser.error(f"--story {error}")
    tasks = _tasks(parser, options)
    if options.shrink and (len(tasks) != 1 or options.scenario is not None):
        parser.error("--shrink makes one plan smaller: say --plan FILE, or --seeds with one seed")
    with _errors_only(), files_in_memory():
        return _shrink(tasks[0], options) if options.shrink else _run(tasks, options, story)


def _run(tasks: list[Task], options: argparse.Namespace, story: Story) -> int:
    """Run all tasks, and print what has come of them."""
    with_trace = options.trace or options.story is not None
    started_s = time.monotonic()
    failed: list[Verdict] = []
    faults: Counter[str] = Counter()
    checkpoints = rescales = drained = occurred = done = 0
    verdicts = _verdicts(tasks, options.jobs)
    for task, verdict in zip(tasks, verdicts):
        if done and done % SEEDS_PER_PROGRESS == 0:
            print(f"{done} of {len(tasks)} seeds, {time.monotonic() - started_s:.0f} s", flush=True)
        done += 1
        faults.update(verdict.faults)
        checkpoints += verdict.published
        rescales += verdict.rescales
        drained += verdict.drained
        occurred += verdict.occurred
        if with_trace:
            print(f"{task.title}: {verdict.summary}")
            _print_trace(task, story, None)
        if verdict.violations:
            failed.append(verdict)
            if len(failed) <= FAILURES_TOLD_MAX:
                _tell(task, verdict, with_trace=not with_trace)
            if options.stop_at_first:
                verdicts.close()
                break
    if options.scenario is None:
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
        print(f"{rescales} rescales; {checkpoints} checkpoints published, {drained} of them while the job drained")
        print(f"faults: {told or 'none'}; {time.monotonic() - started_s:.0f} s")
    else:
        print(f"the schedule occurred in {occurred} of {done} runs")
        if not occurred and not failed:
            failed.append(Verdict(tasks[0].seed, ["the schedule did not occur"]))
            print("  that proves nothing: it counts as a violation; try more seeds")
    runs = f"{done} seeds" if options.plan is None else "1 plan"
    print(f"{runs}, {sum(len(v.violations) for v in failed)} violations")
    return 1 if failed else 0


def _tasks(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Task]:
    """Return the tasks of the command line."""
    if options.plan is not None:
        if options.seeds is not None or options.scenario is not None:
            parser.error("--plan runs the plan in a file: leave out --seeds and --scenario")
        try:
            plan = read_plan(options.plan)
            build(plan)
        except PlanError as error:
            parser.error(f"--plan {options.plan}: {error}")
        return [Task(plan=plan, path=options.plan)]
    first, colon, end = (options.seeds or "0:100").partition(":")
    try:
        seeds = range(int(first), int(end) if colon else int(first) + 1)
    except ValueError:
        parser.error(f"--seeds {options.seeds}: write from:to, for example 0:1000, or one number")
    return [Task(seed, options.scenario) for seed in seeds]


def _verdicts(tasks: Iterable[Task], jobs: int) -> Generator[Verdict, None, None]:
    """Yield verdicts in the order of their tasks. Closed early, it starts no further ones."""
    if jobs <= 1:
        yield from map(Task.run, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare) as pool:
        try:
            yield from pool.map(_run_and_collect, tasks, chunksize=4)
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    """Prepare a process that runs tasks."""
    _LOGGER.setLevel(logging.ERROR)
    _leave_garbage_to_the_end_of_a_run()


@contextmanager
def _errors_only() -> Iterator[None]:
    """Leave out warnings, such as those of stores that a plan lets fail: what happens in a run stands in its trace.
    Afterwards the level is what it was, because the process of a test continues.
    """
    level = _LOGGER.level
    _LOGGER.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)


def _leave_garbage_to_the_end_of_a_run() -> None:
    """Collect garbage only at the end of a run: a world is one large cycle, and garbage only then. A collection during
    the run would traverse the living world and everything imported, again and again.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)


def _run_and_collect(task: Task) -> Verdict:
    verdict = task.run()
    gc.collect()
    # What is left is what the run has imported: the next collection need not traverse it.
    gc.freeze()
    return verdict


def _shrink(task: Task, options: argparse.Namespace) -> int:
    """Write and tell the smaller plan of a failure."""
    try:
        shrunk = shrink(task.read(), lambda line: print(line, flush=True), options.shrink_runs, options.shrink_seconds)
    except PlanError as error:
        print(f"{task.title}: {error}")
        return 1
    path = write_plan(shrunk.plan, task.smaller_path)
    print(f"{task.title} FAILED with {shrunk.violation}")
    for line in shrunk.removed:
        print(f"  {line}")
    rest = "nothing else can be left out" if shrunk.is_smallest else "--shrink-runs and --shrink-seconds allow for more"
    print(f"  after {shrunk.runs} runs; {rest}")
    print(f"  plan: {path}")
    print(f"  again: {Task(path=path).again(path)} --trace", flush=True)
    return 1


def _tell(task: Task, verdict: Verdict, with_trace: bool) -> None:
    print(f"{task.title} FAILED: {verdict.summary}")
    for violation in verdict.violations:
        print(f"  {violation}")
    if with_trace:
        _print_trace(task, Story(), TRACE_LINES_MAX)
    path = task.keep_plan(verdict)
    if path is not None and task.path is None:
        print(f"  plan: {path}")
    print(f"  again: {task.again(path)} --trace", flush=True)
    if path is not None:
        print(f"  make it smaller: {task.again(path)} --shrink", flush=True)


def _print_trace(task: Task, story: Story, lines_max: int | None) -> None:
    """Run the task again, with a trace. `lines_max`: the number of last lines of the story to print; None: all."""
    trace = [line for line in task.run(True).trace if story.tells(line)]
    left_out = 0 if lines_max is None else max(0, len(trace) - lines_max)
    if left_out:
        print(f"  ... {left_out} lines before this are left out; --trace shows them")
    print(HEADER)
    for line in trace[left_out:]:
        print(line)
