"""Checks PROTOCOL.md against its proofs: every schedule of a rule has a scenario or a plan, and a mutant."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from simulation.scenarios import SCENARIOS
from tests.simulation.proofs import PAGE, PLANS, in_order, mutants, page, schedules_shown

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")
SECTIONS = {int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", TEXT, re.S | re.M)}
RULE_TEXTS = dict(re.findall(r"^\*\*(\d+\.\d+)(.*?)(?=^\*\*\d|^## |\Z)", TEXT, re.S | re.M))
NUMBERS = list(RULE_TEXTS)

NO_RULE = {
    "with_settings": "makes mutants of others",
    "an_adaptive_job_has_deadlines_after_its_end": "a deadline that nobody waits for; a kept plan finds it",
    "nobody_submits_the_slots_of_a_first_step": "breaks how slots are got, below the protocol; a kept plan finds it",
    "the_silence_of_a_slot_is_a_difference": "breaks how a sum is rounded, below the protocol; a kept plan finds it",
    "whoever_is_told_to_rescale_runs_the_present_job": "breaks an order of the simulation; a kept plan finds it",
    "no_first_step_of_a_restore_has_fewer_slots": "breaks the simulation's checker; a kept plan finds it",
    "nobody_gives_checkpoints_more_time": "breaks what a user of the simulation does; a kept plan finds it",
    "an_adaptive_job_may_not_grow": "breaks the simulation's checker; a kept plan finds it",
    "what_a_killed_successor_has_left_counts_as_an_orphan": "breaks the simulation's checker; a kept plan finds it",
    "programs_of_all_drivers_are_the_newest": "breaks the simulation's checker; a kept plan finds it",
}
"""Mutants that break no rule of PROTOCOL.md, and what they do."""

REFERENCES_MIN = 30
"""As many docstrings of scenarios and tests name their sections, at least; fewer have become unreadable to the test."""


def without_this(text: str) -> str:
    return text.partition("*Without this:*")[2]


def schedules(text: str) -> list[str]:
    """The letters of a rule's schedules; one without a letter if there are none."""
    return re.findall(r"(?:^|[.;])\s+(?:or\s+|Or\s+)?\(([a-z])\)\s", without_this(text)) or [""]


def schedules_without_a_letter(text: str) -> list[str]:
    """The beginnings of schedules that have none, although there are several."""
    return re.findall(r"(?:; or|\. Or)\s(?!\([a-z]\))\S+", re.sub(r"\s+", " ", without_this(text)))


@cache
def functions() -> dict[str, bool]:
    """The functions of the simulation's tests; whether they take what a mutant takes."""
    found: dict[str, bool] = {}
    for path in (ROOT / "tests" / "simulation").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found[node.name] = [argument.arg for argument in node.args.args[:1]] == ["patch"]
    return found


def references(docstring: str) -> list[int]:
    """Sections that a docstring names, as "section 12" or "sections 3, 4 and 11"; not those of another document."""
    without_others = re.sub(r"ARCHITECTURE\.md,? section \d+", "", docstring)
    lists = re.findall(r"\b[Ss]ections? (\d+(?:(?:, | and )\d+)*)\b(?!\.\d)", without_others)
    return [int(number) for found in lists for number in re.findall(r"\d+", found)]


def test_sections_and_rules_are_numbered_without_gaps() -> None:
    assert list(SECTIONS) == list(range(1, len(SECTIONS) + 1))
    for section in SECTIONS:
        own = [int(number.partition(".")[2]) for number in NUMBERS if number.startswith(f"{section}.")]
        assert own == list(range(1, len(own) + 1)) and own, f"section {section}"


def comments() -> set[tuple[str, str]]:
    """The rules that comments in penstock/ name, with the letter of a schedule, if they name one: `# 2.3a: why`."""
    files = (ROOT / "penstock").rglob("*.py")
    return {
        found for path in files for found in re.findall(r"^ *# (\d+\.\d+)([a-z]?): ", path.read_text("utf-8"), re.M)
    }


def test_a_comment_names_each_rule_at_the_line_that_keeps_it() -> None:
    named = comments()
    assert [number for number in NUMBERS if number not in {rule for rule, _ in named}] == [], "rules without a comment"


def test_comments_name_no_rule_that_does_not_exist() -> None:
    unknown = [
        rule + letter
        for rule, letter in sorted(comments())
        if rule not in RULE_TEXTS or (letter and letter not in schedules(RULE_TEXTS[rule]))
    ]
    assert unknown == []


def of_rule(names: dict[str, tuple[str, ...]], rule: str) -> set[str]:
    return {name for name, rules in names.items() if rule in rules}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_proves_a_rule_of_its_section(name: str) -> None:
    assert SCENARIOS[name].section in {in_order(rule)[0] for rule in SCENARIOS[name].rules}


def test_every_section_has_its_schedules() -> None:
    assert {scenario.section for scenario in SCENARIOS.values()} == set(SECTIONS)


def test_every_rule_that_is_named_exists() -> None:
    known = {f"{number}{letter}" for number, text in RULE_TEXTS.items() for letter in ["", *schedules(text)]}
    named = {**schedules_shown(), **mutants()}
    assert not {name: rules for name, rules in named.items() if not rules or not set(rules) <= known}


@pytest.mark.parametrize("number", NUMBERS)
def test_every_rule_is_whole(number: str) -> None:
    """It has the schedules that break a system without it; for each of them a scenario or a plan that brings it about,
    and a mutant.
    """
    text = RULE_TEXTS[number]
    assert "*Without this:*" in text
    for schedule in schedules(text):
        assert of_rule(schedules_shown(), number + schedule), f"no scenario has schedule {number}{schedule}"
        assert of_rule(mutants(), number + schedule), f"no mutant breaks {number}{schedule}"


def test_the_page_of_proofs_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.simulation.proofs"


@pytest.mark.parametrize("number", NUMBERS)
def test_several_schedules_have_letters(number: str) -> None:
    assert not schedules_without_a_letter(RULE_TEXTS[number])


@pytest.mark.parametrize("number", NUMBERS)
def test_every_letter_is_that_of_a_schedule(number: str) -> None:
    text = RULE_TEXTS[number]
    own = schedules(text)
    assert own == [""] or own == [chr(ord("a") + i) for i in range(len(own))]


def test_every_plan_that_is_named_exists() -> None:
    plans = {path.stem for path in (ROOT / "tests" / "simulation" / "plans").glob("*.json")}
    assert set(PLANS) <= plans


def test_every_mutant_names_the_rules_that_it_breaks() -> None:
    takes_patch = {name for name, takes_patch in functions().items() if takes_patch}
    assert takes_patch - set(mutants()) == set(NO_RULE)


def test_references_to_rules_resolve() -> None:
    """Rules and sections that code, tests and scenarios name."""
    lost, found = [], 0
    for folder in ("penstock", "simulation", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for line in text.splitlines():
                if "PROTOCOL.md" in line:
                    lost += [f"{path}: {n}" for n in re.findall(r"\b(\d+\.\d+)\b", line) if n not in NUMBERS]
            docstring = ast.get_docstring(ast.parse(text)) or ""
            sections = references(docstring)
            found += bool(sections)
            lost += [f"{path}: section {n}" for n in sections if n not in SECTIONS]
    assert not lost
    assert found >= REFERENCES_MIN


@pytest.mark.parametrize("path", sorted((ROOT / "simulation" / "scenarios").glob("*.py")), ids=lambda p: p.stem)
def test_a_file_of_scenarios_names_their_sections(path: Path) -> None:
    own = {scenario.section for scenario in SCENARIOS.values() if scenario.__module__.endswith(f".{path.stem}")}
    assert own <= set(references(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""))


@pytest.mark.parametrize(
    ("text", "letters", "without"),
    [
        ("*Without this:* a row is lost, or comes twice.", [""], []),
        ("*Without this:* (a) a row\nis lost; or\n(b) comes twice. Or (c) as (a) in 11.5.", ["a", "b", "c"], []),
        ("*Without this:* a row is lost. Or\nanother one; or two.", [""], [". Or another", "; or two."]),
        ("*Without this:* (a) a row is lost; or it comes twice.", ["a"], ["; or it"]),
    ],
)  # fmt: skip
def test_schedules_are_found(text: str, letters: list[str], without: list[str]) -> None:
    assert schedules(text) == letters and schedules_without_a_letter(text) == without


@pytest.mark.parametrize(
    ("docstring", "sections"),
    [
        ("Tests section 12: slots.", [12]),
        ("Tests sections 3, 4 and 11 for faults.", [3, 4, 11]),
        ("Aims failures at moments. Sections 3 and 11.", [3, 11]),
        ("Breaks the rules (PROTOCOL.md, section 40).", [40]),
        ("FAULT and CHECK. ARCHITECTURE.md, section 7, lists what happens.", []),
        ("Reads two sections.", []),
    ],
)  # fmt: skip
def test_references_are_found(docstring: str, sections: list[int]) -> None:
    assert references(docstring) == sections
