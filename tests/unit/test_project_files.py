"""Tests what a newcomer relies on before any of our code runs: commands, entry points, links."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.slow_tests import SLOW, THOROUGH

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_make_help_lists_every_command_and_is_the_default() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    command = ["make", "--no-print-directory"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines()} == set(phony.split())


def test_continuous_integration_calls_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text(encoding="utf-8")
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_the_quicker_commands_leave_out_is_there_and_runs_elsewhere() -> None:
    for name in (*SLOW, *THOROUGH):
        glob, _, test = name.partition("::")
        files = list((ROOT / "tests").glob(glob))
        assert files, name
        assert not test or f"def {test.partition('[')[0]}(" in files[0].read_text(encoding="utf-8"), name
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test\n" in script and "make test-thorough\n" in script


@pytest.mark.parametrize(
    "target",
    [*PROJECT["project"]["scripts"].values(), *PROJECT["project"]["entry-points"]["penstock.executors"].values()],
)
def test_entry_points_lead_somewhere(target: str) -> None:
    module, _, attribute = target.partition(":")
    loaded = __import__(module, fromlist=[attribute])
    assert callable(getattr(loaded, attribute))


PAGES = sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))
DOCUMENTS = [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "news/README.md", "benchmarks/RESULTS.md",
    "benchmarks/HISTORY.md",
    *PAGES,
]  # fmt: skip


def test_news_have_a_kind_that_a_release_collects() -> None:
    collected = tomllib.loads((ROOT / "towncrier.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in collected["type"])
    news = [path for path in (ROOT / "news").iterdir() if path.name not in collected["ignore"]]
    assert not [path.name for path in news if not re.fullmatch(rf"\+[a-z0-9-]+\.({kinds})\.md", path.name)]
    assert all(path.read_text(encoding="utf-8").strip() for path in news)
    assert collected["start_string"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing, f"{document} links to {missing}"


INTERNALS = ["ARCHITECTURE.md", "CONTRIBUTING.md", *(page for page in PAGES if page.startswith("docs/internals/"))]


@pytest.mark.parametrize("document", INTERNALS)
def test_files_that_a_page_names_exist(document: str) -> None:
    named = re.findall(r"`((?:[\w.]+/)+\w+\.py)`", (ROOT / document).read_text(encoding="utf-8"))
    assert not [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "penstock"))]


def test_the_readmes_programs_compile() -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert programs
    for program in programs:
        compile(program, "README.md", "exec")


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_tests_import_each_other_by_full_names() -> None:
    """Refuses short names: what a module defines that mypy does not find is Any to it, and pytest finds no module by a
    short name."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = {file.stem for file in files}
    short = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                short.append(f"{file.name}: {node.module}")
            elif isinstance(node, ast.Import):
                short += [f"{file.name}: {alias.name}" for alias in node.names if alias.name in names]
    assert short == ["test_standalone.py: every_edge"], "which slots import by this name"
