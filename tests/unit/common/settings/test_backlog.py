"""The interval during backlog is at least the usual one, or none."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options.option import OptionError
from penstock.common.settings.checkpoint_settings import backlog_interval_ms

USUAL, DURING = "execution.checkpointing.interval", "execution.checkpointing.interval-during-backlog"


@pytest.mark.parametrize(
    ("options", "interval_ms"),
    [
        ({}, None),
        ({USUAL: "1 s"}, None),
        ({USUAL: "1 s", DURING: "0"}, 0.0),
        ({USUAL: "1 s", DURING: "9 ms"}, 0.0),
        ({USUAL: "1 s", DURING: "1 s"}, 1_000.0),
        ({USUAL: "1 s", DURING: "1 min"}, 60_000.0),
        ({DURING: "1 min"}, 60_000.0),
    ],
)
def test_the_interval(options: dict[str, Any], interval_ms: float | None) -> None:
    assert backlog_interval_ms(Configuration(options)) == interval_ms


def test_a_shorter_one_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=f"{DURING}: 500 ms is shorter than {USUAL} .1000 ms.; write 0"):
        backlog_interval_ms(Configuration({USUAL: "1 s", DURING: "500 ms"}))
