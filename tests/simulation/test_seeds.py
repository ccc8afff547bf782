"""Random clusters under random faults. `make test` runs two thousand by the command line besides. A seed means another
run as soon as anything is drawn otherwise, so what one has found is kept as a named scenario, not by its number.
"""

from __future__ import annotations

import pytest

from penstock.simulation.running import run_seed


def check(seed: int) -> None:
    verdict = run_seed(seed)
    again = f"python -m penstock.simulation --seeds {seed} --trace"
    assert not verdict.violations, "\n".join([verdict.summary, *verdict.violations, again])


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_twenty_seeds(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


def test_runs_are_not_tame() -> None:
    """What is drawn does contain faults, unaligned checkpoints, spares that step in, and jobs of many shapes."""
    verdicts = [run_seed(seed) for seed in range(200, 230)]
    assert len({fault for v in verdicts for fault in v.faults}) >= 6
    assert sum(v.unaligned > 0 for v in verdicts) >= 5
    assert sum(v.published for v in verdicts) >= 60
    assert len({v.summary.split(";")[0] for v in verdicts}) == 30
    assert sum(v.rescales for v in verdicts) >= 5
    assert sum(v.drained for v in verdicts) >= 1
    assert sum(v.replaced for v in verdicts) >= 3
