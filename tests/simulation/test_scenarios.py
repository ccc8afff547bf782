"""Runs every schedule that the protocol's rules describe, and every one that the simulation has found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulation.command_line import main
from simulation.jobs import output
from simulation.plans.plan import read_plan
from simulation.plans.running import Verdict, run_plan
from simulation.scenarios import SCENARIOS, run_scenario
from tests.simulation.sensitive_seeds import SENSITIVE, seeds_of

RUNS = 2
"""The sensitive seeds of a schedule see all its mutants: one seed for most of them, two for some."""
RUNS_MAX = 6
"""As many, if the schedule does not occur sooner."""


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_schedule_comes_about_and_breaks_nothing(name: str) -> None:
    verdicts: list[Verdict] = []
    for seed in seeds_of(name, RUNS_MAX):
        verdicts.append(run_scenario(name, seed))
        if len(verdicts) >= RUNS and any(v.occurred for v in verdicts):
            break
    failed = [f"seed {v.seed}: {violation}" for v in verdicts for violation in v.violations]
    assert not failed, "\n".join([f"python -m simulation --scenario {name} --seeds <seed> --trace", *failed])
    assert any(v.occurred for v in verdicts), "in no run the schedule occurred: nothing is proved"


def test_a_schedule_that_nothing_steers_is_a_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    # No sink's writer prepares anything: all rows are lost.
    monkeypatch.setattr(output._Writer, "prepare_commit", lambda self, checkpoint_id: [])
    plans = {
        "watermark-in-its-place": True, "ends-without-checkpoints": True,
        "commit-fails-before-the-final-checkpoint": True, "slot-hangs-during-a-release": True,
        # One is steered, and the other one has an operator that is no step.
        "barriers-turn-at-both-ends": False, "functions-that-keep-rows": False,
    }  # fmt: skip
    for name, is_a_plan in plans.items():
        verdict = run_scenario(name, 1)
        assert verdict.violations and (verdict.plan is not None) is is_a_plan, name
    assert main(["--scenario", "ends-without-checkpoints", "--seeds", "1"]) == 1
    path = Path("build/simulation/ends-without-checkpoints-1.json")
    assert f"  again: python -m simulation --plan {path} --trace" in capsys.readouterr().out.splitlines()
    violations = run_scenario("ends-without-checkpoints", 1).violations
    assert run_plan(read_plan(path)).violations == violations != []


def test_sensitive_seeds_are_those_of_schedules() -> None:
    assert set(SENSITIVE) <= set(SCENARIOS)


def test_scenarios_tell_their_schedule() -> None:
    for name, scenario in SCENARIOS.items():
        assert re.fullmatch(r"[a-z-]+", name)
        assert scenario.__doc__ and len(scenario.__doc__) > 80, name
