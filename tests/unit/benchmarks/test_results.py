"""HISTORY.md has one table with a row per measure, and the runs, the newest first. RESULTS.md is made of the table."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from measure import OURS, Figures, Row
from measures import MEASURES, rows_of
from results import COLUMNS, HEADER, HERE, HISTORY, MISSED, NEWEST_BELOW, NOTHING, RESULTS, Table, insert, table_line
from results_page import CHART, HEADLINES, chart, page, times_better

TEXT = HISTORY.read_text(encoding="utf-8")
DATE = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?")
REVISION = re.compile(r"[0-9a-f]{7,}(-dirty)?((, | to )[0-9a-f]{7,})*")


def test_the_table_says_what_when_and_of_which_revision() -> None:
    rows = Table.of(TEXT).rows
    assert len(rows) > 50
    for cells in rows.values():
        row = dict(zip(COLUMNS, cells, strict=True))
        assert DATE.fullmatch(row["date"]) and REVISION.fullmatch(row["revision"]), row
        assert row["ratio"] == NOTHING or re.fullmatch(r"\d+\.\d\d×", row["ratio"]), row
        assert row["ratio"] == NOTHING or row["peer"] != NOTHING, f"a ratio to what? {row}"
        assert row["ours"] != NOTHING or row["ratio"] != NOTHING, f"nothing was measured: {row}"
        assert all(row[bound][0] in "≤≥-0123456789" for bound in ("must", "aim")), row


def test_the_page_and_its_chart_are_made_of_the_table() -> None:
    """Fails if one was changed alone; `results_page.write` makes them again."""
    rows = Table.of(TEXT).rows
    assert page(rows) == RESULTS.read_text(encoding="utf-8")
    assert chart(rows) == (HERE / CHART).read_text(encoding="utf-8")


def test_the_page_is_one_page() -> None:
    assert len(HEADLINES) == 10
    assert len(RESULTS.read_text(encoding="utf-8").splitlines()) < 40
    better = {measure.title: measure.better for measure in MEASURES}
    assert all(better.get(h.measure, h.better) == h.better for h in HEADLINES)


@pytest.mark.parametrize(
    ("ours", "peer", "better", "factor"),
    [("2 ms", "1,000 ms (Flink)", "less", 500), ("1,500", "3,000 (Flink)", "more", 0.5), ("2 ms", "-", "less", None)],
)
def test_twice_as_good_is_2(ours: str, peer: str, better: Literal["less", "more"], factor: float | None) -> None:
    assert times_better(ours, peer, better) == factor


def test_titles_are_those_of_the_measures_and_their_bounds_are_the_same() -> None:
    titles = [measure.title for measure in MEASURES]
    assert len(titles) == len(set(titles)), "a title names one measure"
    rows = Table.of(TEXT).rows
    for measure in MEASURES:
        if measure.title not in rows or measure.bound_by is not None:
            continue
        case = {OURS: [{measure.field: 1.0}], **{side: [{measure.field: 1.0}] for side in measure.sides}}
        if measure.beside_field:
            case[OURS][0][measure.beside_field] = 1.0
        if measure.growth:
            case = {OURS: [{f"{measure.growth}_rss_bytes_{when}": 1 for when in ("1min", "end")}]}
        (row,) = [row for row in rows_of(Figures({measure.case: case})) if row.measure == measure.title]
        shown = dict(zip(COLUMNS, rows[measure.title], strict=True))
        must = shown["must"].removesuffix(MISSED).strip()
        assert (must, shown["aim"]) == (row.must or NOTHING, row.aim or NOTHING)


def test_a_run_replaces_its_rows_whole_and_leaves_the_others() -> None:
    table = Table.of(TEXT)
    known, new = MEASURES[0].title, MEASURES[1].title
    old = Table(table.before, {name: cells for name, cells in table.rows.items() if name != new}, table.after)
    measured = [
        Row(new, "7 ms", "14 ms (Flink)", 0.5, "≤ 0.5×", "", True),
        Row(known, "8 ms", "", None, "≤ 7 ms", "", False),
    ]
    renewed = old.renewed(measured, "2030-01-01 00:00", "abcdef0")
    assert renewed.rows[new] == (new, "7 ms", "14 ms (Flink)", "0.50×", "≤ 0.5×", "", "2030-01-01 00:00", "abcdef0")
    assert Table.of(str(renewed)).rows[known] == (
        known,
        "8 ms",
        "-",
        "-",
        "≤ 7 ms (missed)",
        "-",
        "2030-01-01 00:00",
        "abcdef0",
    )
    assert list(renewed.rows)[:2] == [known, new], "in the order of the measures"
    others = [name for name in table.rows if name not in (known, new)]
    assert [renewed.rows[name] for name in others] == [table.rows[name] for name in others]
    assert str(Table.of(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Results\n", "needs one table"),
        (f"{HEADER}\n|---|\n| a | b |\n", "has not a cell"),
        (f"{HEADER}\n|---|\n{table_line(['a', *['1'] * 6, ''])}\n" * 1 + table_line(["a", *["1"] * 7]), "two rows"),
    ],
)
def test_a_broken_table_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Table.of(text)


def test_the_newest_section_comes_first_and_older_ones_stay() -> None:
    text = HISTORY.read_text(encoding="utf-8")
    once = insert(text, "## one\n")
    twice = insert(once, "## two\n")
    assert twice.index(NEWEST_BELOW) < twice.index("## two") < twice.index("## one")
    assert twice.endswith(text.partition(NEWEST_BELOW)[2].lstrip())
    with pytest.raises(ValueError, match="has lost its line"):
        insert("nothing here", "## one")
