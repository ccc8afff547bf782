"""`python -m penstock.simulation --seeds 0:1000`: runs seeds, and tells how to see a failure again."""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from penstock.simulation.running import Verdict, run_seed
from penstock.simulation.scenarios import SCENARIOS, run_scenario

FAILURES_TOLD_MAX = 20
TRACE_LINES_MAX = 400
SEEDS_PER_PROGRESS = 1000
_ALLOCATIONS_BETWEEN_COLLECTIONS = 500_000
"""Only a run that is far larger than others collects garbage before it is over."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="from:to, to not included, or a single seed")
    parser.add_argument("--scenario", help="a named schedule instead of random ones: " + ", ".join(sorted(SCENARIOS)))
    parser.add_argument("--trace", action="store_true", help="a line for each event")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--stop-at-first", action="store_true", help="end with the first seed that fails, without the others"
    )
    options = parser.parse_args(arguments)
    if options.scenario is not None and options.scenario not in SCENARIOS:
        parser.error(f"there is no scenario {options.scenario!r}; there are: {', '.join(sorted(SCENARIOS))}")
    try:
        seeds = _seeds(options.seeds)
    except ValueError:
        parser.error(f"--seeds {options.seeds}: write from:to, for example 0:1000, or one number")
    started_s = time.monotonic()
    failed: list[Verdict] = []
    faults: Counter[str] = Counter()
    checkpoints = rescales = drained = came_about = done = 0
    verdicts = _verdicts(seeds, options.scenario, options.jobs)
    for verdict in verdicts:
        if done and done % SEEDS_PER_PROGRESS == 0:
            print(f"{done} of {len(seeds)} seeds, {time.monotonic() - started_s:.0f} s", flush=True)
        done += 1
        faults.update(verdict.faults)
        checkpoints += verdict.published
        rescales += verdict.rescales
        drained += verdict.drained
        came_about += verdict.came_about
        if options.trace:
            print(f"seed {verdict.seed}: {verdict.summary}")
            _print_trace(verdict.seed, options.scenario, None)
        if verdict.violations:
            failed.append(verdict)
            if len(failed) <= FAILURES_TOLD_MAX:
                _tell(verdict, options.scenario, with_trace=not options.trace)
            if options.stop_at_first:
                verdicts.close()
                break
    if options.scenario is None:
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
        print(f"{rescales} rescales; {checkpoints} checkpoints published, {drained} of them while the job drained")
        print(f"faults: {told or 'none'}; {time.monotonic() - started_s:.0f} s")
    else:
        print(f"the schedule has come about in {came_about} of {done} runs")
        if not came_about and not failed:
            failed.append(Verdict(seeds[0], ["the schedule has not come about"]))
            print("  that proves nothing: it counts as a violation; try more seeds")
    print(f"{done} seeds, {sum(len(v.violations) for v in failed)} violations")
    return 1 if failed else 0


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    return range(int(first), int(end)) if colon else range(int(first), int(first) + 1)


def _verdicts(seeds: range, scenario: str | None, jobs: int) -> Generator[Verdict, None, None]:
    """Yield verdicts in the order of their seeds. Closed early, it starts no further seeds."""
    work: Iterable[tuple[str | None, int]] = ((scenario, seed) for seed in seeds)
    if jobs <= 1:
        yield from map(_run, work)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _leave_garbage_to_the_end_of_a_run) as pool:
        try:
            yield from pool.map(_run_and_collect, work, chunksize=4)
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_garbage_to_the_end_of_a_run() -> None:
    """A world is one large cycle, and garbage when its run is over. Whoever looks for garbage while it runs looks at a
    world that lives, and again and again at everything that was imported."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)


def _run(work: tuple[str | None, int]) -> Verdict:
    scenario, seed = work
    return run_seed(seed) if scenario is None else run_scenario(scenario, seed)


def _run_and_collect(work: tuple[str | None, int]) -> Verdict:
    verdict = _run(work)
    gc.collect()
    return verdict


def _tell(verdict: Verdict, scenario: str | None, with_trace: bool) -> None:
    print(f"seed {verdict.seed} FAILED: {verdict.summary}")
    for violation in verdict.violations:
        print(f"  {violation}")
    named = f" --scenario {scenario}" if scenario is not None else ""
    if with_trace:
        _print_trace(verdict.seed, scenario, TRACE_LINES_MAX)
    print(f"  again: python -m penstock.simulation{named} --seeds {verdict.seed} --trace", flush=True)


def _print_trace(seed: int, scenario: str | None, lines_max: int | None) -> None:
    """Runs the seed again, with a trace. `lines_max`: only the last so many."""
    trace = (run_seed(seed, True) if scenario is None else run_scenario(scenario, seed, True)).trace
    left_out = 0 if lines_max is None else max(0, len(trace) - lines_max)
    if left_out:
        print(f"  ... {left_out} lines before this are left out; --trace shows them")
    for line in trace[left_out:]:
        print(line)
