"""Collects the proofs of PROTOCOL.md's rules (scenarios, kept plans, mutants), and writes docs/internals/proofs.md.

A rule is named by its number, with the letter of the schedule if it has several: "2.3a". Scenarios have an attribute
`rules`, mutants a decorator `breaks`. `python -m tests.simulation.proofs` renews the page.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from simulation.scenarios import SCENARIOS

Mutant = Callable[[Callable[[Any, str, Any], None]], None]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "proofs.md"

PLANS: dict[str, tuple[str, ...]] = {
    "barriers-come-without-a-pause": ("3.3c",),
    "barriers-hold-time-back": ("5.1b",),
    "cancelled-before-the-first-checkpoint": ("3.8d",),
    "fenced-by-a-checkpoint": ("11.23d",),
    "held-while-draining": ("3.3b",),
    "idle-layer-of-two": ("5.2c",),
    "idle-while-draining": ("10.4b",),
    "last-watermark-is-merged": ("5.8b",),
    "producer-is-about-to-end": ("5.2b",),
    "published-below-a-restart": ("3.6c",),
    "slept-over-the-end": ("11.23d",),
    "slots-are-given-up": ("12.10d",),
    "spare-is-waited-for": ("12.10c",),
    "stop-fails-inside-a-row": ("9.3b",),
    "stop-is-written-while-the-job-fails": ("11.14b",),
    "stored-whole-behind-what-was-consolidated": ("11.22c",),
}
"""Kept plans that bring a rule's schedule about where no scenario does."""

HEAD = """\
# Proofs of the rules

For each rule of [PROTOCOL.md](../../PROTOCOL.md), and each of its schedules: the scenarios and kept plans that bring
the schedule about (`python -m simulation --scenario NAME`, `tests/simulation/plans/`), and the mutants that break the
rule on purpose (`tests/simulation/test_*_mutants.py`). Generated from the code by `python -m tests.simulation.proofs`.

| rule | scenarios and plans | mutants |
|---|---|---|
"""


def breaks(*rules: str) -> Callable[[Mutant], Mutant]:
    """Return a decorator that names the rules that a mutant breaks."""

    def named(mutant: Mutant) -> Mutant:
        RULES_OF_MUTANTS[mutant.__name__] = rules
        return mutant

    return named


RULES_OF_MUTANTS: dict[str, tuple[str, ...]] = {}
"""Mutants whose modules were imported, with their rules."""


@cache
def mutants() -> dict[str, tuple[str, ...]]:
    """Return all mutants with their rules."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if "@breaks(" in path.read_text(encoding="utf-8"):
            importlib.import_module(f"tests.simulation.{path.stem}")
    return dict(RULES_OF_MUTANTS)


def schedules_shown() -> dict[str, tuple[str, ...]]:
    """Return all scenarios and kept plans with their rules."""
    return {**{name: scenario.rules for name, scenario in SCENARIOS.items()}, **PLANS}


def page() -> str:
    """Return the text of docs/internals/proofs.md."""
    shown, broken = schedules_shown(), mutants()
    rules = {rule for names in (shown, broken) for found in names.values() for rule in found}

    def cell(names: dict[str, tuple[str, ...]], rule: str) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names) if rule in names[name])

    lines = [f"| {rule} | {cell(shown, rule)} | {cell(broken, rule)} |" for rule in sorted(rules, key=in_order)]
    return HEAD + "\n".join(lines) + "\n"


def in_order(rule: str) -> tuple[int, int, str]:
    """Return the place of a rule: section, number, letter."""
    found = re.fullmatch(r"(\d+)\.(\d+)([a-z]?)", rule)
    if found is None:
        raise ValueError(f"{rule!r} is no number of a rule, such as 2.3 or 2.3a")
    return int(found[1]), int(found[2]), found[3]


def main() -> None:
    # The decorator fills the dict of the module that has this name, and not that of `__main__`.
    from tests.simulation import proofs

    PAGE.write_text(proofs.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
