"""Runs the simulation against a broken rule until it reports the violation that the rule is there to prevent."""

from __future__ import annotations

import re

from simulation.plans.running import run_seed
from simulation.scenarios import run_scenario
from tests.simulation.sensitive_seeds import seeds_of

SEEDS_MAX = 30

READ_DAMAGED = (
    r"failed: .*(does not exist in schema|record batch|message body|flatbuffers|pickle data|canonical key)"
    r"|[1-9]\d* rows lost|[1-9]\d* too many"
)
"""The violation where bytes are used that are not what was written: they cannot be decoded, or are other rows."""


def assert_found(where: str | list[int], violation: str) -> None:
    """Runs a named schedule, or random seeds, until one reports a violation that the regular expression matches."""
    others: list[str] = []
    for seed in seeds_of(where, SEEDS_MAX) if isinstance(where, str) else where:
        verdict = run_scenario(where, seed) if isinstance(where, str) else run_seed(seed)
        if any(re.search(violation, found) for found in verdict.violations):
            return
        others += verdict.violations
    told = "".join(f"\n  {other[:200]}" for other in others[:10]) or " nothing"
    raise AssertionError(f"nobody has reported {violation!r}; what was reported:{told}")
