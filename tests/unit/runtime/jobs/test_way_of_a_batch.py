"""Tests docs/internals/ways.md: a batch passes the stations that it lists, under the names that it lists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.runtime.jobs.way_of_a_batch import Walk, walk

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "internals" / "ways.md").read_text(encoding="utf-8")
OF_A_BATCH, OF_A_BARRIER = PAGE.split("## A barrier")
STATION = r"`((?:runtime|network|protocol|operators)/[\w/]+\.py [\w.]+)`"
STATIONS_MAX = 26
"""The stations of a batch from a reader to the next chain, in one process."""
NAMES_MAX = 6
SOMETIMES = {"protocol/channel/ends.py OutputChannel.enqueue_event", "network/frame_codec.py FrameDecoder._end"}
"""They see rows if these have not left yet when an event follows, or come in several parts."""
NAMELESS = {"item", "received", "buffer", "chunk", "first", "last"}
"""Names of what carries anything, or bytes, and of the ends of a queue."""


@pytest.fixture(scope="module")
def walked() -> Walk:
    return walk()


def test_a_batch_passes_the_stations_of_the_page(walked: Walk) -> None:
    listed = re.findall(STATION, OF_A_BATCH.replace("\n", " "))
    assert sorted((set(walked.names) ^ set(listed)) - SOMETIMES) == [], (
        "stations that only one of the page and the walk has"
    )
    numbered = [int(number) for number in re.findall(r"^\| (\d+) \|", OF_A_BATCH, re.M)]
    in_one_process = numbered[: numbered.index(1, 1)]
    assert len(in_one_process) <= STATIONS_MAX


def test_a_thing_has_one_name_at_all_stations(walked: Walk) -> None:
    names = re.findall(r"^\| (?!name )(\w+) \| [a-z]", OF_A_BATCH, re.M)
    assert names and len(names) <= NAMES_MAX
    found = {re.sub("(?<=ch)es$|s$", "", name) for names in walked.names.values() for name in names}
    assert sorted(found - NAMELESS) == sorted(set(names) & found)


@pytest.mark.parametrize("station", re.findall(STATION, OF_A_BARRIER))
def test_stations_of_a_barrier_exist(station: str) -> None:
    path, _, name = station.partition(" ")
    tree: ast.AST = ast.parse((ROOT / "penstock" / path).read_text(encoding="utf-8"))
    for part in name.split("."):
        tree = next(n for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == part)
