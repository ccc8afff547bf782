"""Tests that the pages name every option of checkpoints and of what a job starts from, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.common.options import CheckpointingOptions, ConfigOption, StateRecoveryOptions

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "checkpointing.md").read_text(encoding="utf-8")
SECTION = re.search(r"^## All options\n(.*?)(?=^## )", PAGE, re.S | re.M)
assert SECTION is not None
ROWS = dict(re.findall(r"^\| `([\w.-]+)` \| (.*?) \| ", SECTION[1], re.M))
OPTIONS: list[ConfigOption[Any]] = [
    option
    for options in (CheckpointingOptions, StateRecoveryOptions)
    for option in vars(options).values()
    if isinstance(option, ConfigOption)
]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_the_page_of_checkpoints_lists_the_option_with_its_default(option: ConfigOption[Any]) -> None:
    assert option.key in ROWS, f"add a line to the table 'All options' of docs/checkpointing.md: {option.description}"
    written = ROWS[option.key].strip("`")
    if written == "not set":
        assert option.default in (None, ()), f"the default is {option.default_text}"
    else:
        assert option.parse(written) == option.default, f"the default is {option.default_text}"


def test_the_table_lists_no_other_options() -> None:
    assert len(OPTIONS) > 20
    assert set(ROWS) == {option.key for option in OPTIONS}
