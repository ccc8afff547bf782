"""Random clusters under random faults. CI runs a thousand seeds by the command line; these are for `make test`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from penstock.simulation.running import run_seed

_spec = importlib.util.spec_from_file_location("kept_seeds", Path(__file__).with_name("seeds.py"))
assert _spec is not None and _spec.loader is not None
_kept = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_kept)


def check(seed: int) -> None:
    verdict = run_seed(seed)
    again = f"python -m penstock.simulation --seeds {seed} --trace"
    assert not verdict.violations, "\n".join([verdict.summary, *verdict.violations, again])


@pytest.mark.parametrize("seed", sorted(_kept.KEPT))
def test_seeds_that_found_something(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_twenty_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


def test_runs_are_not_tame() -> None:
    """What is drawn does contain faults, unaligned checkpoints and jobs of many shapes."""
    verdicts = [run_seed(seed) for seed in range(200, 230)]
    assert len({fault for v in verdicts for fault in v.faults}) >= 6
    assert sum(v.unaligned > 0 for v in verdicts) >= 5
    assert sum(v.published for v in verdicts) >= 60
    assert len({v.summary.split(";")[0] for v in verdicts}) == 30
    assert sum(v.rescales for v in verdicts) >= 5
    assert sum(v.drained for v in verdicts) >= 1
