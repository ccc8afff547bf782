"""Runs the tasks of the command line: a seed, a plan, or a named schedule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulation.plans.plan import Plan
from simulation.plans.running import Verdict, plan_as_read, run_plan, run_seed
from simulation.scenarios import run_scenario

PROGRAM = "python -m simulation"
PLANS = Path("build/simulation")
"""The folder for plans of failures."""


@dataclass(frozen=True)
class Task:
    """Names one run. `scenario`: the schedule that `seed` varies. `plan`: what `path` holds; there is no seed then."""

    seed: int = 0
    scenario: str | None = None
    plan: Plan | None = None
    path: Path | None = None

    @property
    def title(self) -> str:
        return f"seed {self.seed}" if self.path is None else f"plan {self.path}"

    def run(self, with_trace: bool = False) -> Verdict:
        if self.plan is not None:
            return run_plan(self.plan, with_trace)
        if self.scenario is not None:
            return run_scenario(self.scenario, self.seed, with_trace)
        return run_seed(self.seed, with_trace)

    def read(self) -> Plan:
        """Return the plan that is run."""
        return plan_as_read(self.seed) if self.plan is None else self.plan

    @property
    def smaller_path(self) -> Path:
        name = str(self.seed) if self.path is None else self.path.stem.removesuffix(".small")
        return PLANS / f"{name}.small.json"

    def keep_plan(self, verdict: Verdict) -> Path | None:
        """Write the plan of a run that has failed; return its path. None: it is no plan, but a schedule that a scenario
        steers."""
        if self.path is not None or verdict.plan is None:
            return self.path
        name = str(self.seed) if self.scenario is None else f"{self.scenario}-{self.seed}"
        return write_plan(verdict.plan, PLANS / f"{name}.json")

    def again(self, path: Path | None) -> str:
        """Return the command that runs the task again. `path`: of its plan."""
        if path is not None:
            return f"{PROGRAM} --plan {path}"
        return f"{PROGRAM}{'' if self.scenario is None else f' --scenario {self.scenario}'} --seeds {self.seed}"


def write_plan(plan: Plan, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plan.encode())
    return path
