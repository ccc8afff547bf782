"""Breaks the rules of what may be in flight, one at a time (PROTOCOL.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.channel import credit_pool
from penstock.runtime.subtask import subtask_factory
from tests.simulation.finding import assert_found

Patch = Callable[[Any, str, Any], None]


def each_channel_has_a_bound_of_its_own(patch: Patch) -> None:
    for module in (credit_pool, subtask_factory):
        patch(module, "reserved_window", lambda bound_bytes, channels: bound_bytes)


def blocked_channels_use_up_the_bound_of_the_others(patch: Patch) -> None:
    changed = credit_pool.CreditPool._on_changed

    def counted(self: Any, channel: Any) -> None:
        blocked_by, channel.blocked_by = channel.blocked_by, set()
        changed(self, channel)
        channel.blocked_by = blocked_by

    patch(credit_pool.CreditPool, "_on_changed", counted)


@pytest.mark.parametrize(
    ("mutant", "violation"),
    [
        (each_channel_has_a_bound_of_its_own, r"a gate of 8 channels holds \d+ bytes"),
        (blocked_channels_use_up_the_bound_of_the_others, r"was given up, and nothing has gone wrong"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found("gate-of-many-channels-is-bounded", violation)
