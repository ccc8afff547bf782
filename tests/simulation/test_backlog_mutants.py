"""Breaks the rules of a backlog (PROTOCOL.md, section 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.driver.coordinator import CheckpointCoordinator
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("10.5")
def a_backlog_changes_no_interval(patch: Patch) -> None:
    patch(CheckpointCoordinator, "on_backlog", lambda self, is_backlog, now_ms: None)


@pytest.mark.parametrize("scenario", ["no-checkpoints-during-a-backlog", "no-checkpoints-before-the-last-source"])
def test_a_broken_rule_is_found(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a_backlog_changes_no_interval(monkeypatch.setattr)
    assert_found(scenario, r"is triggered during a backlog")
