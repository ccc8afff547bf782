"""Checks the glossary, docs/internals/words.md: each word has one meaning, and neither the code nor the documents
use a synonym that the table refuses.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORDS_PAGE = "docs/internals/words.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / WORDS_PAGE).read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]
REFUSED = {synonym: row[0] for row in ROWS for synonym in row[2].split(", ") if synonym}
WORDS = (r"\s+".join(map(re.escape, synonym.split())) for synonym in sorted(REFUSED, key=len, reverse=True))
SYNONYM = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.I)

PACKAGES = [*sorted(f"penstock/{path.parent.name}" for path in ROOT.glob("penstock/*/__init__.py")), "simulation"]
PAGES = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
DOCUMENTS = ["PROTOCOL.md", "ARCHITECTURE.md", *sorted(PAGES - {WORDS_PAGE})]
NOT_PROSE = re.compile(
    r"^```.*?^```$"  # a block of code
    r"|`(?:[^`\n]|\n(?!\n))+`"  # code in a line
    r"|\]\([^)]*\)"  # the target of a link
    r"|Azure Blob Storage|Storage Blob Data Contributor|\ba quota\b",  # names of others: Azure's, and a disk's limit
    re.S | re.M,
)


def words_of(name: str) -> str:
    """Return the words of an identifier: `LetGoOf` and `let_go_of` become "let go of"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).replace("_", " ").lower()


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of all comments, docstrings, descriptions of fields, and names."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.NAME:
            yield token.start[0], words_of(token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())


@cache
def refused_in(source: str) -> tuple[tuple[int, str], ...]:
    return tuple((line, found[0].lower()) for line, text in texts(source) for found in SYNONYM.finditer(text))


def refused_in_document(text: str) -> list[tuple[int, str]]:
    """Return (line, synonym) of the prose of a document."""
    prose = NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    found = SYNONYM.finditer(prose)
    return [(prose.count("\n", 0, match.start()) + 1, " ".join(match[0].lower().split())) for match in found]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_code_uses_no_refused_synonym(package: str) -> None:
    found = [
        f"  {path.relative_to(ROOT)}:{line}: {synonym!r} (write {REFUSED[synonym]!r})"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, synonym in refused_in(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(["see docs/internals/words.md:", *sorted(set(found))])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_documents_use_no_refused_synonym(document: str) -> None:
    found = [
        f"  {document}:{line}: {synonym!r} (write {REFUSED[synonym]!r})"
        for line, synonym in refused_in_document((ROOT / document).read_text("utf-8"))
    ]
    assert not found, "\n".join(["see docs/internals/words.md:", *found])


def test_every_word_is_listed_once_and_refused_nowhere() -> None:
    words = [word for row in ROWS for word in row[0].split(", ")]
    assert len(words) == len(set(words)) > 50
    assert not set(words) & set(REFUSED)
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1  # it goes on", "goes on"),
        ("def let_go_of_slots(): ...", "let go of"),
        ("class StandByList: ...", "stand by"),
        ('class A:\n    x: int\n    """Built anew."""', "anew"),
        ('"""What a\nspare\nis told."""', "is told"),
    ],
)
def test_synonyms_are_found_in_comments_names_and_docstrings(source: str, found: str) -> None:
    assert [synonym for _, synonym in refused_in(source)] == [found]


def test_strings_for_users_and_other_words_are_not_refused() -> None:
    assert not refused_in('x = "goes on"\nbesides = ongoing = 1')


def test_synonyms_are_found_in_documents_over_two_lines_and_in_tables() -> None:
    assert refused_in_document("First.\nIt goes\n  on `anew`.\n\n| word | stand by |\n") == [
        (2, "goes on"),
        (5, "stand by"),
    ]


def test_code_and_links_of_a_document_are_not_read() -> None:
    text = "```sh\ngoes on\n```\n[continue](page.md#anew)\n`anew`\n"
    assert refused_in_document(text) == []
    assert refused_in_document(text.replace("[continue]", "[goes on]")) == [(4, "goes on")]
