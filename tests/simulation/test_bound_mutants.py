"""Breaks the rules of what may be in flight, one at a time (PROTOCOL.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.protocol.channel import credit_pool
from penstock.runtime.subtask import subtask_factory
from penstock.runtime.subtask.subtask_settings import SubtaskSettings
from tests.simulation.finding import assert_found
from tests.simulation.proofs import breaks

Patch = Callable[[Any, str, Any], None]


@breaks("4.2a")
def each_channel_has_a_bound_of_its_own(patch: Patch) -> None:
    for module in (credit_pool, subtask_factory):
        patch(module, "reserved_window", lambda bound_bytes, channels: bound_bytes)


@breaks("4.2b")
def blocked_channels_use_up_the_bound_of_the_others(patch: Patch) -> None:
    changed = credit_pool.CreditPool._on_changed

    def counted(self: Any, channel: Any) -> None:
        blocked_by, channel.blocked_by = channel.blocked_by, set()
        changed(self, channel)
        channel.blocked_by = blocked_by

    patch(credit_pool.CreditPool, "_on_changed", counted)


@breaks("4.2c")
def credit_is_granted_in_equal_parts(patch: Patch) -> None:
    granted = credit_pool.CreditPool.granted

    def equally(self: Any) -> list[Any]:
        before = {channel: channel.granted_bytes for channel in self.channels}
        got = granted(self)
        for channel in got:
            part_bytes = channel.applied_bytes + self._bound_bytes // len(self.channels)
            channel.granted_bytes = max(before[channel], min(channel.granted_bytes, part_bytes))
            self._on_changed(channel)
        return [channel for channel in got if channel.granted_bytes > before[channel]]

    patch(credit_pool.CreditPool, "granted", equally)


@breaks("4.3")
def bounds_do_not_follow_the_rate(patch: Patch) -> None:
    of = SubtaskSettings.of
    patch(SubtaskSettings, "of", staticmethod(lambda configuration: replace(of(configuration), bound_target_ms=0.0)))


MANY_BYTES = r"a gate of \d+ channels holds \d+ bytes"
MUTANTS: list[tuple[Callable[[Patch], None], str, str]] = [
    # (mutant, schedule, the violation that it must cause)
    (each_channel_has_a_bound_of_its_own, "gate-of-many-channels-is-bounded", MANY_BYTES),
    (each_channel_has_a_bound_of_its_own, "records-grow-suddenly", MANY_BYTES),
    (credit_is_granted_in_equal_parts, "channels-are-skewed", r"the busy channel has never held more than \d+ bytes"),
    (
        blocked_channels_use_up_the_bound_of_the_others,
        "gate-of-many-channels-is-bounded",
        r"was given up, and nothing has gone wrong",
    ),
    (bounds_do_not_follow_the_rate, "consumer-becomes-slow", r"a gate holds rows for \d+ ms"),
]


@pytest.mark.parametrize(
    ("mutant", "schedule", "violation"), MUTANTS, ids=[f"{m.__name__}, {s}" for m, s, _ in MUTANTS]
)
def test_a_broken_rule_is_found(
    mutant: Callable[[Patch], None], schedule: str, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    assert_found(schedule, violation)
