"""Runs random clusters under random faults: a few, so that pytest alone sees what is broken for many. `make test` and
`make test-thorough` run 820 by the command line. A seed means another run as soon as
anything is drawn otherwise, so what one has found is kept as a named scenario or a plan, not by its number.
"""

from __future__ import annotations

import pytest

from simulation.plans.running import Verdict, run_seed


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return [run_seed(seed) for seed in range(200, 230)]


def test_no_rule_is_violated(verdicts: list[Verdict]) -> None:
    again = "python -m simulation --trace --seeds"
    assert not [f"{again} {v.seed}: {v.summary}: {v.violations}" for v in verdicts if v.violations]


def test_runs_are_not_tame(verdicts: list[Verdict]) -> None:
    """Draws faults, unaligned checkpoints, spares that step in, slots that share a process, and jobs of many shapes."""
    assert len({fault for v in verdicts for fault in v.faults}) >= 6
    assert sum(v.unaligned > 0 for v in verdicts) >= 5
    assert sum(v.published for v in verdicts) >= 60
    assert len({v.summary.split(";")[0] for v in verdicts}) == 30
    assert sum(v.rescales for v in verdicts) >= 5
    assert sum(v.drained for v in verdicts) >= 1
    assert sum(v.replaced for v in verdicts) >= 3
    assert sum(v.packed for v in verdicts) >= 3
