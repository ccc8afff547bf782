"""PROTOCOL.md and what it refers to: every scenario stands in its section, every mutant exists, every rule is whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from penstock.simulation.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")
RULES = TEXT[: TEXT.index("## Tables of transitions")]
SECTIONS = {int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", RULES, re.S | re.M)}
NUMBERS = re.findall(r"^\*\*(\d+\.\d+)", RULES, re.M)


def named(text: str, kind: str) -> set[str]:
    """Names in backticks behind "Scenarios:" or "Mutants:", and in the table of the log's rules."""
    lists = " ".join(re.findall(rf"{kind}:((?:\s|`[\w-]+`|,)+)", text))
    return set(re.findall(r"`([\w-]+)`", lists))


def in_tables(text: str) -> set[str]:
    return {name for line in text.splitlines() if line.startswith("| 11.") for name in re.findall(r"`([\w-]+)`", line)}


def test_sections_and_rules_are_numbered_without_gaps() -> None:
    assert list(SECTIONS) == list(range(1, len(SECTIONS) + 1))
    for section in SECTIONS:
        own = [int(number.partition(".")[2]) for number in NUMBERS if number.startswith(f"{section}.")]
        assert own == list(range(1, len(own) + 1)) and own, f"section {section}"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_stands_in_its_section(name: str) -> None:
    section = SCENARIOS[name].section
    assert name in named(SECTIONS[section], "Scenarios") | in_tables(SECTIONS[section]), f"section {section}"


def test_every_scenario_that_is_named_exists() -> None:
    known = set(SCENARIOS)
    assert not {name for name in named(RULES, "Scenarios") if name not in known}
    assert not {name for name in in_tables(RULES) if "-" in name and name not in known}


def test_every_mutant_that_is_named_exists() -> None:
    functions = {
        node.name
        for path in (ROOT / "tests" / "simulation").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    mutants = named(RULES, "Mutants") | {name for name in in_tables(RULES) if "_" in name}
    assert mutants and not mutants - functions


def test_references_to_rules_resolve() -> None:
    """Sections and rules that code, tests and scenarios name."""
    lost = []
    for folder in ("penstock", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for line in text.splitlines():
                if "PROTOCOL.md" in line:
                    lost += [f"{path}: {n}" for n in re.findall(r"\b(\d+\.\d+)\b", line) if n not in NUMBERS]
                    lost += [f"{path}: {n}" for n in re.findall(r"section (\d+)", line) if int(n) not in SECTIONS]
                elif line.startswith('"""Section '):
                    lost += [f"{path}: {n}" for n in re.findall(r"Section (\d+)", line) if int(n) not in SECTIONS]
    assert not lost
