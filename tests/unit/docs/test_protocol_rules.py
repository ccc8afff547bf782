"""Checks PROTOCOL.md and what it refers to: every scenario stands in its section, every mutant exists, every schedule
of a rule has both.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from simulation.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")
RULES = TEXT[: TEXT.index("## Tables of transitions")]
SECTIONS = {int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", RULES, re.S | re.M)}
RULE_TEXTS = dict(re.findall(r"^\*\*(\d+\.\d+)(.*?)(?=^\*\*\d|^## |^\| rule |\Z)", RULES, re.S | re.M))
NUMBERS = list(RULE_TEXTS)

NO_RULE = {
    "with_settings": "makes mutants of others",
    "an_adaptive_job_has_deadlines_after_its_end": "a deadline that nobody waits for; a kept plan finds it",
    "nobody_submits_the_slots_of_a_first_step": "breaks how slots are got, below the protocol; a kept plan finds it",
    "pauses_follow_each_other": "a rule of Parking's own, below the protocol; a kept plan finds it",
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


NAME = r"`([\w-]+)`(?:\s\(([a-z](?:,\s[a-z])*)\))?"
"""A name in backticks, and the letters of the schedules that it belongs to, if its rule has several."""


def named(text: str, kind: str, schedule: str = "") -> set[str]:
    """Names behind "Scenarios:", "Kept plans:" or "Mutants:". `schedule`: those with this letter only."""
    lists = " ".join(found[0] for found in re.findall(rf"{kind}:((?:\s|{NAME}|,)+)", text))
    return with_letter(lists, schedule)


def in_tables(text: str, number: str = "", schedule: str = "") -> set[str]:
    """Names in the table of the log's rules. `number`: in the rows of that rule only."""
    rows = [line for line in text.splitlines() if line.startswith("| 11.")]
    if number:
        rows = [row for row in rows if number in row.split("|")[1].replace(" ", "").split(",")]
    return with_letter(" ".join(rows), schedule)


def with_letter(lists: str, schedule: str) -> set[str]:
    return {name for name, letters in re.findall(NAME, lists) if not schedule or schedule in re.split(r",\s", letters)}


def without_this(text: str) -> str:
    return text.partition("*Without this:*")[2].partition("Scenarios:")[0]


def schedules(text: str) -> list[str]:
    """The letters of a rule's schedules; one without a letter if there are none."""
    return re.findall(r"(?:^|[.;])\s+(?:or\s+|Or\s+)?\(([a-z])\)\s", without_this(text)) or [""]


def schedules_without_a_letter(text: str) -> list[str]:
    """The beginnings of schedules that have none, although there are several."""
    return re.findall(r"(?:; or|\. Or)\s(?!\([a-z]\))\S+", re.sub(r"\s+", " ", without_this(text)))


def all_mutants() -> set[str]:
    """Names of mutants that stand in PROTOCOL.md."""
    return named(RULES, "Mutants") | {name for name in in_tables(RULES) if "_" in name}


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


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_stands_in_its_section(name: str) -> None:
    section = SCENARIOS[name].section
    assert name in named(SECTIONS[section], "Scenarios") | in_tables(SECTIONS[section]), f"section {section}"


def test_every_section_has_its_schedules() -> None:
    assert {scenario.section for scenario in SCENARIOS.values()} == set(SECTIONS)


def test_every_scenario_that_is_named_exists() -> None:
    known = set(SCENARIOS)
    assert not {name for name in named(RULES, "Scenarios") if name not in known}
    assert not {name for name in in_tables(RULES) if "-" in name and name not in known}


def test_every_mutant_that_is_named_exists() -> None:
    mutants = all_mutants()
    assert mutants and not mutants - set(functions())


@pytest.mark.parametrize("number", NUMBERS)
def test_every_rule_is_whole(number: str) -> None:
    """It has the schedules that break a system without it; for each of them a scenario or a plan that brings it about,
    and a mutant.
    """
    text = RULE_TEXTS[number]
    assert "*Without this:*" in text
    for schedule in schedules(text):
        table = in_tables(RULES, number, schedule)
        scenarios = named(text, "Scenarios", schedule) | named(text, "Kept plans", schedule)
        assert scenarios | {name for name in table if name in SCENARIOS}, f"schedule {schedule}"
        mutants = named(text, "Mutants", schedule)
        assert mutants | {name for name in table if name in functions()}, f"schedule {schedule}"


@pytest.mark.parametrize("number", NUMBERS)
def test_several_schedules_have_letters(number: str) -> None:
    assert not schedules_without_a_letter(RULE_TEXTS[number])


@pytest.mark.parametrize("number", NUMBERS)
def test_every_letter_is_that_of_a_schedule(number: str) -> None:
    text = RULE_TEXTS[number]
    own = schedules(text)
    assert own == [""] or own == [chr(ord("a") + i) for i in range(len(own))]
    rows = [line for line in RULES.splitlines() if line.startswith(f"| {number}")]
    marks = re.findall(NAME, " ".join([text.partition("*Without this:*")[2], *rows]))
    assert {letter for _, letters in marks for letter in re.split(r",\s", letters) if letter} <= set(own)


def test_every_plan_that_is_named_exists() -> None:
    plans = {path.stem for path in (ROOT / "tests" / "simulation" / "plans").glob("*.json")}
    assert named(RULES, "Kept plans") <= plans


def test_every_mutant_breaks_a_rule_that_names_it() -> None:
    mutants = {name for name, takes_patch in functions().items() if takes_patch}
    assert mutants - all_mutants() == set(NO_RULE)


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
        ("*Without this:* a row is lost, or comes twice.\nScenarios: `one`.", [""], []),
        ("*Without this:* (a) a row\nis lost; or\n(b) comes twice. Or (c) as (a) in 11.5.", ["a", "b", "c"], []),
        ("*Without this:* a row is lost. Or\nanother one; or two.", [""], [". Or another", "; or two."]),
        ("*Without this:* (a) a row is lost; or it comes twice.", ["a"], ["; or it"]),
    ],
)  # fmt: skip
def test_schedules_are_found(text: str, letters: list[str], without: list[str]) -> None:
    assert schedules(text) == letters and schedules_without_a_letter(text) == without


def test_names_are_found_by_their_letter() -> None:
    text = "Scenarios: `one` (a), `two`\n(a,\nb), `three`. Kept plans: `four` (b). Mutants: `five` (a)."
    assert named(text, "Scenarios") == {"one", "two", "three"}
    assert named(text, "Scenarios", "b") == {"two"} and named(text, "Kept plans", "b") == {"four"}
    assert named(text, "Mutants", "b") == set()


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
