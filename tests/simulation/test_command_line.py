"""Tests the output of `python -m simulation`."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.protocol.channel import ends as channel
from simulation import command_line
from simulation.command_line import main
from simulation.plans.plan import read_plan
from simulation.plans.running import plan_as_read, run_seed
from simulation.tasks import Task


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Plans of failures are written below the working directory."""
    monkeypatch.chdir(tmp_path)


def test_the_last_line_counts_seeds_and_violations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5:8"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 seeds, 0 violations"


def test_warnings_are_logged_again_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("penstock")
    before = logger.level
    assert main(["--seeds", "5:6"]) == 0
    assert logger.level == before
    logger.warning("logged after the run")
    assert "logged after the run" in caplog.text


def test_a_failure_prints_its_seed_a_trace_and_the_command_that_shows_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)
    seed = next(seed for seed in range(7, 100) if len(run_seed(seed).violations) == 1)
    assert main(["--seeds", f"{seed}:{seed + 1}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 seeds, 1 violations"
    assert any(line.startswith(f"seed {seed} FAILED") for line in lines)
    assert f"  plan: build/simulation/{seed}.json" in lines
    assert f"  again: python -m simulation --plan build/simulation/{seed}.json --trace" in lines
    assert sum("<- slot" in line or "step " in line for line in lines) > 50


def test_a_written_plan_fails_as_its_seed_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)
    verdict = next(v for v in map(run_seed, range(7, 100)) if v.violations)
    assert main(["--seeds", str(verdict.seed)]) == 1
    capsys.readouterr()
    path = f"build/simulation/{verdict.seed}.json"
    assert read_plan(Path(path)) == plan_as_read(verdict.seed)
    assert main(["--plan", path, "--trace"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"plan {path} FAILED: {verdict.summary}" in lines
    assert lines[-1] == f"1 plan, {len(verdict.violations)} violations"
    assert f"  again: python -m simulation --plan {path} --trace" in lines


def test_a_plan_that_holds_every_rule_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("eight.json").write_bytes(plan_as_read(8).encode())
    assert main(["--plan", "eight.json"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 plan, 0 violations"


def test_a_failure_is_made_smaller(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)
    seed = next(seed for seed in range(7, 100) if run_seed(seed).violations)
    assert main(["--seeds", str(seed), "--shrink"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run ")
    path = f"build/simulation/{seed}.small.json"
    assert f"  plan: {path}" in lines
    assert any(line.startswith("  steps: ") for line in lines)
    assert main(["--plan", path]) == 1


def test_what_holds_every_rule_cannot_be_made_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "8", "--shrink"]) == 1
    assert capsys.readouterr().out == "seed 8: the plan violates nothing: there is nothing to make smaller\n"


@pytest.mark.parametrize("arguments", [["--seeds", "0:2"], ["--scenario", "drain-during-a-checkpoint", "--seeds", "1"]])
def test_only_one_plan_is_made_smaller(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--shrink"])
    assert "--shrink makes one plan smaller" in capsys.readouterr().err


def test_it_stops_at_the_first_violation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.InputChannel, "head", lambda self: self.queue[0] if self.queue else None)
    failing = (seed for seed in range(7, 100) if run_seed(seed).violations)
    first, second = next(failing), next(failing)
    assert main(["--seeds", f"7:{second + 1}", "--stop-at-first"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{first - 7 + 1} seeds, ")
    assert [line for line in lines if "FAILED" in line] == [line for line in lines if f"seed {first} FAILED" in line]


def test_verdicts_that_are_closed_early_start_no_further_seeds() -> None:
    verdicts = command_line._verdicts((Task(seed, "ends-without-checkpoints") for seed in range(2, 20_000)), 2)
    assert next(verdicts).seed == 2
    started_s = time.monotonic()
    verdicts.close()
    assert time.monotonic() - started_s < 60


def test_a_scenario_says_whether_it_came_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "barrier-overtakes-handed-rows", "--seeds", "0:2"]) == 0
    assert "occurred in 2 of 2 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--seeds", "many"], ["--scenario", "no-such"], ["--plan", "no-such.json"]], ids=lambda a: a[0]
)
def test_nonsense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_several_processes_find_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "simulation", "--seeds", "2:8", "-j", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    parallel = done.stdout.splitlines()
    assert parallel[-1:] == ["6 seeds, 0 violations"], done.stderr
    assert main(["--seeds", "2:8"]) == 0
    alone = capsys.readouterr().out.splitlines()
    assert parallel[-1] == alone[-1]
    assert parallel[-2].rsplit(";", 1)[0] == alone[-2].rsplit(";", 1)[0]
    assert parallel[:-2] == alone[:-2]
